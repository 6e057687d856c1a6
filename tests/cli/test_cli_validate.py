"""Wrong files: `wick validate` and `wick run` refuse each in the same words, or neither does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Folder
from wick_graph.cli.app import call
from wick_graph.loading import load

OK = ""
"""Instead of a part of the refusal: neither command refuses the file."""

AGENT = "agents: {default: {model: 'scripted:demo', %s}}"

FILES: dict[str, tuple[str, str]] = {
    # the file as a whole
    "empty": ("", "is empty; add agents:"),
    "a list": ("- a", "must be a block of keys at the top"),
    "no yaml": ("agents: {default: [", "not valid YAML"),
    "a key twice": ("agents: {}\nagents: {}", "agents.yaml:2"),
    "no agents": ("agents: {}", "needs at least one agent"),
    "agents is a list": ("agents: [a]", "must be a block of keys"),
    "a bad id": ("agents: {'a b': {}}", "agents"),
    "agnets": ("agnets: {default: {}}", "unknown key; did you mean agents?"),
    "hooks": ("agents: {default: {model: x}}\nmodel: y", "move it under agents.<id> or defaults"),
    "defaults": ("defaults: {modle: x}\nagents: {default: {}}", "did you mean model?"),
    "a variable": (AGENT % "search: {url: 'http://x', api_key: '${NO_SUCH_NAME}'}", "NO_SUCH_NAME"),
    # the store
    "store": ("store: checkpoints.db\n" + AGENT % "name: x", "must be a database URL"),
    "store of another kind": ("store: mysql://h/d\n" + AGENT % "name: x", "agents.yaml:1: store:"),
    "keys": ("store_keys: secret\n" + AGENT % "name: x", "store_keys"),
    "keys that are not there": (
        "store_keys: file:no.keys\n" + AGENT % "name: x",
        "agents.yaml:1: store_keys:",
    ),
    "limits": ("limits: {requests_at_once: 0}\n" + AGENT % "name: x", "must be 1 or more"),
    "callbacks": ("callbacks: {allow: [ftp://x]}\n" + AGENT % "name: x", "callbacks"),
    # keys of an agent: their form
    "name": (AGENT % "name: ''", "must not be empty"),
    "system_prompt": (AGENT % "system_prompt: 3", "must be text"),
    "tools": (AGENT % "tools: calculate", "must be a list"),
    "a tool twice": (AGENT % "tools: [calculate, calculate]", "tools"),
    "max_iterations": (AGENT % "max_iterations: 0", "must be 1 or more"),
    "ttl": (AGENT % "ttl: soon", "ttl"),
    "max_tokens": (AGENT % "max_tokens: many", "max_tokens"),
    "temperature": (AGENT % "temperature: hot", "temperature"),
    "tool_timeout": (AGENT % "tool_timeout: -1", "tool_timeout"),
    "deadline": (AGENT % "deadline: [1]", "deadline"),
    "retention": (AGENT % "retention: {keep: 3}", "keep_latest"),
    "budget": (AGENT % "budget: -1", "must be more than 0"),
    "budget per": (AGENT % "budget: {usd: 1, per: day}", "must be run or thread"),
    "context_window": (AGENT % "context_window: 0", "context_window"),
    "journal": (AGENT % "journal: all", "must be off, steps or full"),
    "redact": (AGENT % "journal: {redact: ['(']}", "redact"),
    "protect": (AGENT % "protect: x", "must be a list"),
    "writable": (AGENT % "writable: {a: b}", "must be a list"),
    "allow_client_system": (AGENT % "allow_client_system: maybe", "must be true or false"),
    "search": (AGENT % "search: {url: 'file:///etc'}", "search.url"),
    "skills": (AGENT % "skills: {paths: [s], mode: slow}", "must be eager or lazy"),
    "memory": (AGENT % "memory: {}", "is missing; add it"),
    "backend": (AGENT % "backend: {type: cloud}", "backend.type"),
    "mcp_servers": (AGENT % "mcp_servers: {x: {timeout: 5}}", "mcp_servers.x"),
    "subagents": (AGENT % "subagents: {other: {}}", "description"),
    # keys of an agent: what they name
    "provider": (
        "agents: {default: {model: 'opnai:gpt-5'}}",
        "agents.yaml:1: agents.default.model: No provider is called 'opnai'; did you mean openai?",
    ),
    "provider in a block": (
        "agents:\n  default:\n    model: {provider: antropic, model: x}",
        "agents.yaml:3: agents.default.model: No provider is called 'antropic'; did you mean anth",
    ),
    "a bare model": ("agents: {default: {model: nix}}", "names no provider"),
    "a key of a model": ("agents: {default: {model: 'openai:gpt-5'}}", "set OPENAI_API_KEY"),
    "a script": (
        "agents: {default: {model: 'scripted:no.yaml'}}",
        "agents.default.model: scripted:no.yaml names a file that does not exist",
    ),
    "a fallback": (
        "agents: {default: {model: {model: 'scripted:demo', fallbacks: ['opnai:x']}}}",
        "did you mean openai?",
    ),
    "a missing package of a provider": (
        "agents: {default: {model: 'groq:llama'}}",
        "agents.default.model: a model of groq needs langchain-groq, which is not installed",
    ),
    "an unknown tool": (
        "agents:\n  default:\n    model: scripted:demo\n    tools: [calculate, calclate]",
        "agents.yaml:4: agents.default.tools[1]: unknown tool calclate; did you mean calculate?",
    ),
    "a search without an endpoint": (AGENT % "tools: [internet_search]", "agents.default.tools"),
    "a sub-agent": (
        AGENT % "subagents: {reviwer: {description: Reviews.}}" + "\ndefaults: {name: x}",
        "agents.default.subagents.reviwer: there is no agent reviwer",
    ),
    "the fault of a sub-agent": (
        "agents:\n  default: {model: 'scripted:demo', subagents: {low: {description: Works}}}\n"
        "  low: {model: 'opnai:x'}",
        "agents.yaml:3: agents.low.model: No provider",
    ),
    "an approval": (
        AGENT % "tools: [calculate], approvals: {calclate: true}",
        "agents.default.approvals.calclate: there is no tool calclate; did you mean calculate?",
    ),
    "an approval's expression": (AGENT % "approvals: {x: 'len('}", "approvals.x"),
    "middleware": (
        AGENT % "middleware: [{use: TodoListMiddlewear}]",
        "agents.default.middleware[0]: langchain.agents.middleware has no TodoListMiddlewear; did",
    ),
    "the second middleware": (
        AGENT % "middleware: [{use: ModelCallLimitMiddleware, args: {run_limit: 2}}, {use: x.Y}]",
        "agents.default.middleware[1]: 'x.Y' cannot be named here",
    ),
    "arguments of a middleware": (
        AGENT % "middleware: [{use: ModelCallLimitMiddleware, args: {limit: 2}}]",
        "agents.default.middleware[0]: ModelCallLimitMiddleware does not take these arguments",
    ),
    "skills without a backend": (
        AGENT % "skills: {paths: [skills]}",
        "agents.default.skills: needs a backend",
    ),
    "memory without a backend": (
        AGENT % "memory: {paths: [AGENTS.md]}",
        "agents.default.memory: needs a backend",
    ),
    "a folder that is a file": (
        AGENT % "backend: {type: local, workdir: agents.yaml}",
        "agents.yaml cannot be made (Not a directory); name another one",
    ),
    "a folder below a file": (
        AGENT % "backend: {type: local, workdir: agents.yaml/work}",
        "agents.yaml/work cannot be made (Not a directory); name another one",
    ),
    "a name that no folder can have": (
        AGENT % f"backend: {{type: local, workdir: {'x' * 300}}}",
        "cannot be made (File name too long); name another one",
    ),
    "a store that is a folder": (
        "store: sqlite:///.\n" + AGENT % "name: x",
        "agents.yaml:1: store:",
    ),
    "a store that is another file": (
        "store: sqlite:///agents.yaml\n" + AGENT % "name: x",
        "agents.yaml:1: store:",
    ),
    "a folder with the file": (
        AGENT % "backend: {type: local, execute: local, workdir: .}",
        "agents.default.backend: the working directory",
    ),
    "a folder to be made with the store": (
        "store: sqlite:///place/data/wick.db\n"
        + AGENT % "backend: {type: local, execute: local, workdir: place}",
        "which commands at the level local could change",
    ),
    "execute in a container": (
        AGENT % "backend: {type: docker, execute: local}",
        "execute and readable are for type: local",
    ),
    "a relative folder of a container": (
        AGENT % "backend: {type: docker, workdir: work}",
        "backend",
    ),
    "a command where tools write": (
        AGENT % "backend: {type: local, workdir: .}, mcp_servers: {x: {command: [python3, x.py]}}",
        "agents.default.mcp_servers.x: the command starts in",
    ),
    "several faults": (
        "store: mysql://x/y\nagents:\n  default: {model: opnai, tools: [calclate, ls]}",
        "agents.yaml:3: agents.default.tools[0]: unknown tool calclate",
    ),
    # neither
    "a right one": (AGENT % "tools: [calculate]", OK),
    "a folder to be made": (AGENT % "backend: {type: local, execute: local, workdir: w}", OK),
    "skills to come": (AGENT % "backend: {type: local}, skills: {paths: [no-such-folder]}", OK),
    "a server that cannot be reached": (
        AGENT % "mcp_servers: {x: {url: 'http://127.0.0.1:1/'}}",
        OK,
    ),
    "a fault of another agent": (
        "agents:\n  default: {model: 'scripted:demo'}\n  other: {model: 'opnai:x'}",
        "other",
    ),
}
assert len(FILES) >= 60

Wick = Callable[..., tuple[int, str]]


@pytest.fixture
def wick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Wick:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "NO_SUCH_NAME"):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str) -> tuple[int, str]:
        capsys.readouterr()
        code = call(args)
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize("name", FILES)
def test_validate_and_run_refuse_in_the_same_words_or_neither_does(
    wick: Wick, tmp_path: Path, name: str
) -> None:
    text, part = FILES[name]
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    code, said = wick("validate", "--trust")
    assert [entry.name for entry in tmp_path.iterdir()] == ["agents.yaml"]
    agent = [part] if part == "other" else []
    refused, why = wick("run", "--trust", *agent, "Hi")
    if part == OK:
        assert (code, refused) == (0, 0)
        return
    assert (code, refused) == (2, 2)
    assert said == why
    assert all(line.startswith("wick: agents.yaml") for line in said.splitlines())
    assert part in said
    assert [entry.name for entry in tmp_path.iterdir()] == ["agents.yaml"]


def test_a_fault_of_another_agent_stops_no_run(wick: Wick, tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(FILES["a fault of another agent"][0], "utf-8")
    assert wick("run", "default", "Hi")[0] == 0


def test_each_fault_has_its_line(wick: Wick, tmp_path: Path) -> None:
    (tmp_path / "agents.yaml").write_text(FILES["several faults"][0], "utf-8")
    said = wick("validate")[1].splitlines()
    keys = [line.split(": ")[2] for line in said]
    assert keys == ["store", "agents.default.model", "agents.default.tools[0]"]


@pytest.mark.parametrize(
    ("package", "keys", "extra"),
    [
        ("mcp", "mcp_servers: {x: {url: 'http://127.0.0.1:1/'}}", "mcp"),
        ("docker", "backend: {type: docker}", "docker"),
        ("genai_prices", "budget: 1", "cost"),
        ("langchain_openai", "model: {model: 'openai:gpt-5', api_key: k}", "openai"),
    ],
)
def test_a_missing_extra_is_refused_with_what_installs_it(
    wick: Wick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, keys: str, extra: str
) -> None:
    model = "" if "model" in keys else "model: 'scripted:demo', "
    text = f"agents:\n  default: {{{model}{keys}}}"
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    monkeypatch.setitem(sys.modules, package, None)
    code, said = wick("validate")
    assert code == 2
    assert said.startswith("wick: agents.yaml:2: agents.default.")
    assert f'which is not installed; run pip install "wick-graph[{extra}]"' in said
    assert wick("run", "Hi") == (2, said)


def test_middleware_is_not_made_before_the_file_is_trusted(
    wick: Wick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = AGENT % "middleware: [{use: ModelCallLimitMiddleware, args: {limit: 2}}]"
    (tmp_path / "agents.yaml").write_text(text, "utf-8")
    monkeypatch.setenv("WICK_HOME", str(tmp_path / "home"))
    code, said = wick("validate")
    assert (code, said.count("note: ")) == (0, 1)
    unknown = text.replace("ModelCallLimit", "NoSuch")
    (tmp_path / "agents.yaml").write_text(unknown, "utf-8")
    assert wick("validate")[0] == 2


def test_python_refuses_in_the_same_words(wick: Wick, tmp_path: Path) -> None:
    for name in ("provider", "the fault of a sub-agent", "skills without a backend"):
        (tmp_path / "agents.yaml").write_text(FILES[name][0], "utf-8")
        said = wick("validate")[1]
        with load("agents.yaml") as agents, pytest.raises(Exception, match="agents.yaml") as wrong:
            agents["default"]
        assert said == "".join(f"wick: {line}\n" for line in str(wrong.value).splitlines())


@pytest.mark.sisters
@pytest.mark.parametrize("name", ["provider", "a folder with the file", "a right one"])
def test_the_command_itself(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path).write(agents=FILES[name][0])
    checked, ran = folder.wick("validate"), folder.wick("run", "Hi")
    assert checked.code == ran.code == (0 if FILES[name][1] == OK else 2)
    if checked.code:
        assert checked.err == ran.err
        assert json.loads(folder.wick("validate", "--json").out)["ok"] is False
