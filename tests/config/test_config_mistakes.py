"""Mistakes in a file, each told in a sentence with file, line and key path."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.config.parsing import parse
from wick_graph.config import agent_config, nearest, parse_config
from wick_graph.errors import ConfigError

FORM = "write module:name, with a module beside the file or an installed one"


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "agents:\n  default:\n    system_promt: x\n",
            "agents.yaml:3: agents.default.system_promt: unknown key; did you mean system_prompt?",
            id="F6-agent",
        ),
        pytest.param(
            "agents:\n  a: {model: m,\n    tool: [x]}\n",
            "agents.yaml:3: agents.a.tool: unknown key; did you mean tools?",
            id="F6-flow",
        ),
        pytest.param(
            "defaults:\n  max_iteration: 3\nagents: {a: {}, b: {}}\n",
            "agents.yaml:2: defaults.max_iteration: unknown key; did you mean max_iterations?",
            id="F6-defaults-once",
        ),
        pytest.param(
            "agents:\n  a:\n    model:\n      model: m\n      baseUrl: x\n",
            "agents.yaml:5: agents.a.model.baseUrl: unknown key; did you mean base_url?",
            id="F6-model",
        ),
        pytest.param(
            "agents:\n  a:\n    model:\n      model: m\n      fallbacks:\n      - x\n"
            "      - model: y\n        api-key: z\n",
            "agents.yaml:8: agents.a.model.fallbacks[1].api-key: unknown key; "
            "did you mean api_key?",
            id="F6-fallback",
        ),
        pytest.param(
            "agents:\n  backend:\n    bakend: {type: local}\n",
            "agents.yaml:3: agents.backend.bakend: unknown key; did you mean backend?",
            id="F6-agent-called-like-a-block",
        ),
        pytest.param(
            "name: x\nbackend:\n  type: local\n  work_dir: .\n",
            "agents.yaml:4: backend.work_dir: unknown key; did you mean workdir?",
            id="F6-backend",
        ),
        pytest.param(
            "name: x\nskills: {path: [a], paths: []}\n",
            "agents.yaml:2: skills.path: unknown key; did you mean paths?",
            id="F6-skills",
        ),
        pytest.param(
            "agnets:\n  a: {}\n",
            "agents.yaml:1: agnets: unknown key; did you mean agents?",
            id="F6-top",
        ),
        pytest.param(
            "agents: {a: {}}\nstorage: x\n",
            "agents.yaml:2: storage: unknown key; did you mean store?",
            id="F6-top-with-agents",
        ),
        pytest.param(
            "agents: {a: {}}\nmodel: x\n",
            "agents.yaml:2: model: unknown key here; move it under agents.<id> or defaults",
            id="F6-wrong-level",
        ),
        pytest.param(
            "name: x\ndefaults: {}\n",
            "agents.yaml:2: defaults: is only for a file with agents:",
            id="F6-defaults-alone",
        ),
        pytest.param(
            "name: x\nmemory: {paths: [], zzz: 1}\n",
            "agents.yaml:2: memory.zzz: unknown key; valid keys: paths",
            id="F6-nothing-near",
        ),
        pytest.param(
            'name: x\n"a\\nb\\tc": 1\n',
            'agents.yaml:2: "a\\nb\\tc": unknown key; valid keys: name, model, system_prompt, '
            "tools, hooks, backend, skills, memory, recall, protect, writable, context_window, "
            "max_iterations, ttl, max_tokens, temperature, tool_timeout, deadline, output, "
            "retention, budget, approvals, middleware, mcp_servers, subagents, handoffs, search, "
            "context, journal, allow_client_system, store, store_keys, store_warm_bytes, "
            "long_term, callbacks, limits, workers, pool, gateway, channels, cron, defaults, "
            "agents",
            id="F6-strange-key",
        ),
        pytest.param(
            "name: x\nstore_warm_bytes: -1\n",
            "agents.yaml:2: store_warm_bytes: must be 0 or more",
            id="F6-warm-bytes",
        ),
        pytest.param(
            "name: x\npool: {size: 0}\n",
            "agents.yaml:2: pool.size: must be 1 or more",
            id="F6-pool",
        ),
        pytest.param(
            "agents:\n  a:\n    class_path: evil.Mod\n",
            "agents.yaml:3: agents.a.class_path: unknown key; name your own code as module:name "
            "under tools, hooks or model",
            id="F9-class_path",
        ),
        pytest.param(
            "agents:\n  a:\n    hooks: [evil.Mod]\n",
            "agents.yaml:3: agents.a.hooks[0]: must be a block of keys",
            id="F9-hooks",
        ),
        pytest.param(
            "agents:\n  a:\n    model: {use: m:x, provider: y}\n",
            "agents.yaml:3: agents.a.model.provider: unknown key; valid keys: use, args",
            id="own-model",
        ),
        pytest.param(
            "agents:\n  a:\n    temperature: 1\n    model: {use: m:x}\n",
            "agents.yaml:2: agents.a: has temperature or max_tokens, which a model of your own "
            "ignores; give it args:",
            id="own-model-beside",
        ),
        *(
            pytest.param(
                f"agents:\n  a:\n    {key}\n",
                f"agents.yaml:3: agents.a.{at}: {json.dumps(name)} {why}",
                id=f"{at}-{name}",
            )
            for name, why in {
                "./mine.py:f": f"is a path; {FORM}",
                "/etc/mine:f": f"is a path; {FORM}",
                "../mine:f": f"is a path; {FORM}",
                "..mine:f": f"is a path; {FORM}",
                "mine.py:f": f"is a path; {FORM}",
                "mine:f:g": f"names no code; {FORM}",
                "mine:f()": f"names no code; {FORM}",
                "mine:": f"names no code; {FORM}",
                "mine:a.b": f"names no code; {FORM}",
                "mine:__import__": "is private; name something public",
                "mine:_f": "is private; name something public",
                "_mine:f": "is private; name something public",
                "mine.__main__:f": "is private; name something public",
            }.items()
            for key, at in {
                f"tools: ['{name}']": "tools[0]",
                f"hooks: [{{use: '{name}'}}]": "hooks[0].use",
                f"middleware: [{{use: '{name}'}}]": "middleware[0].use",
                f"model: {{use: '{name}'}}": "model.use",
            }.items()
        ),
        pytest.param(
            "agents:\n  a:\n    tools:\n      - ls\n      - 7\n",
            "agents.yaml:5: agents.a.tools[1]: must be text; put it in quotes if it is text",
            id="list-item",
        ),
        pytest.param(
            "agents:\n  a: {tools: [ls,\n\n    7]}\n",
            "agents.yaml:4: agents.a.tools[1]: must be text; put it in quotes if it is text",
            id="list-item-flow",
        ),
        pytest.param(
            "name: x\ntools: [ls, calculate, ls]\n",
            "agents.yaml:2: tools: lists ls twice; keep one",
            id="tool-twice",
        ),
        pytest.param(
            "agents:\n  a:\n    model:\n      provider: openai\n",
            "agents.yaml:3: agents.a.model.model: is missing; add it",
            id="missing",
        ),
        pytest.param(
            "agents:\n  a:\n    model: {model: m, fallbacks: [{model: n, fallbacks: []}]}\n",
            "agents.yaml:3: agents.a.model.fallbacks[0].fallbacks: unknown key; valid keys: "
            "provider, model, base_url, api_key, temperature, max_tokens, timeout, "
            "context_window, retries, params",
            id="fallback-of-a-fallback",
        ),
        pytest.param(
            "name: x\nbackend: {workdir: .}\n",
            "agents.yaml:2: backend.type: is missing; add it",
            id="backend-type",
        ),
        pytest.param(
            "name: x\nbackend: {type: remote}\n",
            "agents.yaml:2: backend.type: must be local or docker",
            id="backend-word",
        ),
        pytest.param(
            "name: x\nmax_iterations: 0\n",
            "agents.yaml:2: max_iterations: must be 1 or more",
            id="iterations-low",
        ),
        pytest.param(
            "name: x\nmax_iterations: 1001\n",
            "agents.yaml:2: max_iterations: must be 1000 or less",
            id="iterations-high",
        ),
        pytest.param(
            "defaults:\n  ttl: soon\nagents:\n  a: {}\n",
            "agents.yaml:2: defaults.ttl: not a duration; write 30s, 5m, 1h, 7d, never, "
            "or a number of seconds",
            id="defaults-value",
        ),
        pytest.param(
            "model: {model: m, timeout: never}\n",
            "agents.yaml:1: model.timeout: cannot be never; write a duration such as 60s",
            id="timeout-never",
        ),
        pytest.param(
            "model: {model: m, base_url: localhost}\n",
            "agents.yaml:1: model.base_url: must be a URL that begins with http:// or https://",
            id="base-url",
        ),
        pytest.param(
            "name: x\nstore: wick.db\n",
            "agents.yaml:2: store: must be a database URL such as sqlite:///checkpoints/wick.db",
            id="store",
        ),
        pytest.param(
            "agents: {}\n",
            "agents.yaml:1: agents: needs at least one agent, as agents: {default: {model: auto}}",
            id="no-agent",
        ),
        pytest.param(
            "store: sqlite:///x.db\n",
            "agents.yaml: agents: needs at least one agent, as agents: {default: {model: auto}}",
            id="only-a-store",
        ),
        pytest.param(
            "agents: [a]\n", "agents.yaml:1: agents: must be a block of keys", id="agents-list"
        ),
        pytest.param(
            "agents:\n  a: gpt\n", "agents.yaml:2: agents.a: must be a block of keys", id="agent"
        ),
        pytest.param(
            "agents:\n  a: {}\n  Code Bot: {}\n",
            'agents.yaml:3: agents."Code Bot": an agent\'s id has up to 64 lower-case letters, '
            "digits, - and _; write code-bot and put the rest under name:",
            id="id-form",
        ),
        *(
            pytest.param(f"agents:\n  a:\n    {key}\n", f"agents.yaml:3: agents.a.{says}", id=key)
            for key, says in (
                (
                    'mcp_servers: {"My Notes": {url: "http://x"}}',
                    'mcp_servers."My Notes": must fit the pattern ^[a-z][a-z0-9_-]{0,31}$',
                ),
                ('approvals: {"": true}', 'approvals."": must not be empty'),
                (
                    "subagents: {B: {description: x}}",
                    "subagents.B: an agent's id has up to 64 lower-case letters, digits, - and _; "
                    "write b and put the rest under name:",
                ),
            )
        ),
        pytest.param(
            "agents:\n  a: {}\nchannels:\n  My Chat: {}\n",
            'agents.yaml:4: channels."My Chat": a name has up to 64 lower-case letters, digits, - '
            "and _; write my-chat",
            id="channel-name",
        ),
        *(
            pytest.param(
                f"agents:\n  {word}: {{}}\n",
                f"agents.yaml:2: agents.{word}: a reserved word cannot be an agent's id; "
                f"write {word}-agent",
                id=f"id-{word}",
            )
            for word in ("invoke", "stream", "events", "traces", "tools", "messages")
        ),
    ],
)
def test_an_error_names_file_line_and_key_path(text: str, expected: str) -> None:
    assert refusal(text) == expected


def test_several_errors_have_a_line_each_in_the_order_of_the_file() -> None:
    text = "defaults:\n  ttl: x\nagents:\n  a:\n    tools: ls\n    nmae: y\n  b:\n    ttl: 1\n"
    assert [line.split(": ")[:2] for line in refusal(text).splitlines()] == [
        ["agents.yaml:2", "defaults.ttl"],
        ["agents.yaml:5", "agents.a.tools"],
        ["agents.yaml:6", "agents.a.nmae"],
    ]


def test_many_errors_are_cut_off() -> None:
    lines = refusal("".join(f"k{i}: 1\n" for i in range(50))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "agents.yaml: 30 more; correct these first"


def test_the_name_of_the_file_cannot_break_the_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config("nmae: x", source="a\nb.yaml", base_dir=Path(), env={})
    assert str(caught.value) == r"a\nb.yaml:1: nmae: unknown key; did you mean name?"


def test_unknown_tools_are_placed_later() -> None:
    file = parse(
        "defaults:\n  tools: [ls, calulate]\nagents:\n  a: {}\n  b: {}\n"
        "  c:\n    tools:\n      - zzz\n"
    )
    file.check_tools(["ls", "calulate", "zzz"])
    with pytest.raises(ConfigError) as caught:
        file.check_tools(["calculate", "ls"])
    assert str(caught.value) == (
        "agents.yaml:2: defaults.tools[1]: unknown tool calulate; did you mean calculate?\n"
        "agents.yaml:8: agents.c.tools[0]: unknown tool zzz; known tools: calculate, ls"
    )
    with pytest.raises(ConfigError, match=r"^agents.yaml:8: agents.c.tools\[0\]"):
        file.check_tools(["calculate", "ls"], "c")


def test_lines_of_keys_are_known_afterwards() -> None:
    file = parse("agents:\n  a:\n    model: m\n    tools:\n      - ls\n      - calculate\n")
    assert file.line(("agents", "a", "tools", 1)) == 6
    assert file.line(("agents", "a", "ttl")) == 2
    error = file.error(("agents", "a", "model"), "no such model")
    assert str(error) == "agents.yaml:3: agents.a.model: no such model"


def test_keys_from_python_get_the_same_sentences() -> None:
    assert agent_config({"name": "x", "ttl": "1h"}).ttl == 3600.0
    assert agent_config({"model": "${HOME}"}).model == "${HOME}"
    with pytest.raises(ConfigError) as caught:
        agent_config({"temprature": 1, "temperature": float("nan")})
    assert set(str(caught.value).splitlines()) == {
        "Agent: temprature: unknown key; did you mean temperature?",
        "Agent: temperature: must be a finite number",
    }


@pytest.mark.parametrize(
    ("word", "words", "expected"),
    [
        ("modle", ["model", "name"], "model"),
        ("MODEL", ["model"], "model"),
        ("xyz", ["model"], None),
        ("", ["model"], None),
        ("model", [], None),
        ("m" * 100_000, ["m" * 99_999], None),
    ],
)
def test_nearest(word: str, words: list[str], expected: str | None) -> None:
    assert nearest(word, words) == expected
