# Five verbs to develop (fmt, lint, type, test, docs), one to see it work (run). Each makes .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
AGENT  ?= default
ASK    ?= What is 21*2, and which files are here?
MODEL  ?=
EXTRAS := openai,anthropic,ollama
TRIALS ?= 1000
SECONDS ?= 600
export ASK
# A module is compiled once, not in each process that a test starts.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test near cov fmt lint type page vendor docs all attack nightly test-slow test-workers test-langgraph test-releases test-doors test-browsers test-local-llm mutants bench bench-gate bench-server bench-page kill test-kill clean
.DEFAULT_GOAL := all

$(BIN)/pip:
	@$(PYTHON) -m venv $(VENV)

$(BIN)/.run: pyproject.toml | $(BIN)/pip
	@echo "Setting up $(VENV) (once, a minute or two) …"
	@$(BIN)/python -m pip install -qq --upgrade pip
	@$(BIN)/python -m pip install -qq --no-compile -e '.[$(EXTRAS)]' -C editable_mode=compat
	@touch $@

$(BIN)/.test: $(BIN)/.run
	@$(BIN)/python -m pip install -qq -e '.[test]' -C editable_mode=compat
	@touch $@

run: $(BIN)/.run          ## run the main job: a question that needs the tools, answered as a stream
	@$(BIN)/wick run $(AGENT) "$$ASK" $(if $(MODEL),--model "$(MODEL)")

# The page is tested with axe-core; without npm, the tests that need it fail and say so.
build/axe.min.js: | $(BIN)/.test
	@$(BIN)/python -m tests.support.axe || true

test: $(BIN)/.test build/axe.min.js  ## run the tests
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

near: $(BIN)/.test        ## name the test files nearest to a module; MODULE=store/leases
	@$(BIN)/python -m tests.support.near $(MODULE)

cov: $(BIN)/.test build/axe.min.js  ## run the tests, and say which lines none of them reaches; takes half as long again
	@$(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report=term:skip-covered $(ARGS)

fmt: $(BIN)/.test         ## format
	@$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

lint: $(BIN)/.test        ## check form
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

type: $(BIN)/.test        ## check types
	@$(BIN)/mypy $(ARGS)

TSC := npm exec --yes --package typescript@7.0.2 -- tsc --noEmit --allowJs --checkJs --strict --target es2022 \
  --module es2022 --moduleResolution bundler --lib es2023,dom,dom.iterable

page: $(BIN)/.test        ## check the types of the page's modules, and the small files that are served (ARGS=--write makes them); needs npm
	@command -v npm >/dev/null || { echo "SKIPPED: make page needs npm; the page's types are not checked"; exit 0; }; \
	  $(TSC) wick_graph/server/page/app.js wick_graph/server/page/file.js && $(BIN)/python -m tests.support.small $(ARGS)

vendor: $(BIN)/.test      ## check the page's library against npm's packages; needs npm
	@command -v npm >/dev/null || { echo "SKIPPED: make vendor needs npm; the page's library is not checked"; exit 0; }; \
	  $(BIN)/python -m tests.support.vendor $(ARGS)

docs: $(BIN)/.test        ## build the documentation in build/docs/site; a broken link is an error
	@$(BIN)/python -m tests.support.site.build

all: lint type test

test-slow: $(BIN)/.test build/axe.min.js  ## the tests that `make test` leaves out: those that take long, the sisters of others, and all examples
	@WICK_NIGHT=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m "slow or hypothesis" --timeout 600 $(ARGS)

test-workers: $(BIN)/.test  ## a fleet of servers and workers under kills, freezes and cuts; sizes by WICK_FLEET_RUNS, _THREADS, _KILLS, _FREEZES, _CUTS, _WORKERS
	@$(BIN)/python -m pytest tests/worker -m "slow or not slow" --timeout 3600 $(ARGS)

nightly:                  ## all that takes hours: the tests' types, slow tests, Firefox, a fleet, mutants, LangGraph's tests on each store, its releases, attacks, 3,000 kills, the page's figures
	@$(MAKE) --keep-going type test-slow test-browsers test-workers mutants test-langgraph test-releases attack test-kill bench-page SECONDS=3600 TRIALS=1000

$(BIN)/.langgraph: $(BIN)/.test
	@$(BIN)/python -m pip install -qq -e '.[langgraph-tests]' -C editable_mode=compat
	@touch $@

test-langgraph: $(BIN)/.langgraph  ## LangGraph's and LangChain's own tests on our stores and agents; ARGS="--stores sqlite -k delta"
	@$(BIN)/python -m tests.langgraph.run $(ARGS)
	@$(BIN)/python -m tests.langgraph.others $(ARGS)

test-releases: $(BIN)/.test  ## the debugger's seams on each allowed release of LangGraph; ARGS="1.2.22" chooses
	@$(BIN)/python -m tests.langgraph.releases $(ARGS)

$(BIN)/.ci: pyproject.toml | $(BIN)/pip  # what .ci/run needs, in one go; uv takes a tenth of pip's time, but reads no pip.conf
	@$(BIN)/python -m pip install -qq uv
	@$(BIN)/uv pip install -q --python $(BIN)/python -e '.[$(EXTRAS),test,langgraph-tests]' \
	  || $(BIN)/python -m pip install -qq -e '.[$(EXTRAS),test,langgraph-tests]' -C editable_mode=compat
	@touch $(BIN)/.run $(BIN)/.test $(BIN)/.langgraph $@

test-doors:                ## JavaScript's clients against our doors; needs node and npm
	@if ! command -v node > /dev/null || ! command -v npm > /dev/null; then \
	  echo "test-doors is skipped: there is no node with npm"; exit 0; fi; \
	  $(MAKE) --no-print-directory $(BIN)/.test && \
	  npm ci --prefix tests/doors --silent --no-audit --no-fund && \
	  $(BIN)/python -m pytest tests/doors -m doors $(ARGS)

test-browsers: $(BIN)/.test ## the page in Firefox, each view in each mode and size; needs firefox-esr, node and npm, and fails without them
	@for tool in firefox-esr node npm; do command -v $$tool >/dev/null || { echo "test-browsers needs $$tool: install Debian's package"; exit 1; }; done; \
	  $(MAKE) --no-print-directory build/axe.min.js && \
	  npm ci --prefix tests/browsers --silent --no-audit --no-fund && \
	  $(BIN)/python -m pytest tests/browsers -m browsers $(ARGS)

test-local-llm: $(BIN)/.test  ## against a running server: WICK_TEST_BASE_URL, WICK_TEST_MODEL
	@$(BIN)/python -m pytest -m local_llm -p no:randomly $(ARGS)

$(BIN)/.bench: $(BIN)/.test
	@$(BIN)/python -m pip install -qq -e '.[bench]' -C editable_mode=compat
	@touch $@

bench: $(BIN)/.bench       ## measure side by side with the peers; ARGS="--json out.json --plots dir"
	@$(BIN)/python benchmarks/run.py $(ARGS)

BASE ?= origin/main
bench-gate: $(BIN)/.bench  ## count the instructions of ten workloads here and at BASE; at most 2 % more; needs valgrind
	@$(BIN)/python benchmarks/gate.py --base $(BASE) $(ARGS)

bench-server: $(BIN)/.bench ## measure 200 streams through a server beside the same in one process
	@$(BIN)/python benchmarks/server.py $(ARGS)

bench-page: $(BIN)/.test   ## measure the page in chromium, over 5,000 and 36,000 moments and over a running thread; ARGS="--rounds 5"
	@PYTHONPATH=. $(BIN)/python benchmarks/page.py $(ARGS)

kill: $(BIN)/.bench        ## kill runs of ours, LangGraph's and DBOS's alike; ARGS="--trials 100"
	@$(BIN)/python benchmarks/kill.py $(ARGS)

test-kill: $(BIN)/.test   ## the durability tests at their sizes for the night; TRIALS=1000
	@WICK_KILL_TRIALS=$(TRIALS) WICK_ZOMBIES=300 WICK_FAULTS=$$(seq -s, 1 60) \
	  $(BIN)/python -m pytest tests/durability -s --timeout 0 $(ARGS)
	@WICK_GATEWAY_KILLS=300 $(BIN)/python -m pytest tests/gateway/test_gateway_kills.py -m "slow or not slow" -s --timeout 0

mutants: $(BIN)/.test      ## break each promise on purpose: a test must notice; ARGS="--quick", ARGS=lease
	@$(BIN)/python -m tests.mutants $(ARGS)

$(BIN)/.attack: $(BIN)/.test
	@$(BIN)/python -m pip install -qq -e '.[attack]' -C editable_mode=compat
	@touch $@

attack: $(BIN)/.attack     ## attack with made-up input until the time is up; SECONDS=600, ARGS="--only archives"
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(ARGS)

clean:
	@rm -rf $(VENV) build dist *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache
