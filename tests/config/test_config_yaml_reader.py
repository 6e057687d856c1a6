"""What strict YAML refuses and what it leaves as text, through the public door."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from wick_graph.config import AgentsFile, ModelConfig, parse_config, yaml_reader
from wick_graph.errors import ConfigError

LIMIT = 256 * 1024
STAY_TEXT = [
    "no", "yes", "on", "off", "y", "n", "No", "True", "TRUE", "1:30", "190:20:30", "012", "0o12",
    "0x1F", "0b1", "1_000", "+5", ".5", "5.", ".inf", "-.inf", ".nan", "2026-11-21",
    "2026-11-21T10:00:00Z", "1e999", "9999999999999999999", "<<x", "=",
]  # fmt: skip


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML is built without libyaml")


def parse(text: str) -> AgentsFile:
    return parse_config(text, source="agents.yaml", base_dir=Path("/srv"), env={})


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return str(caught.value)


def params(value: str) -> Any:
    """What a value means in free-form settings, where no model narrows it."""
    model = parse(f"model: {{model: m, params: {{value: {value}}}}}").agent().model
    assert isinstance(model, ModelConfig)
    return model.params["value"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "name: x\nsystem_prompt: !!python/object/apply:os.system ['touch /tmp/evil']\n",
            "agents.yaml:2: system_prompt: tags (!name) are not allowed; remove it",
            id="F1-python-object",
        ),
        pytest.param(
            "name: !!str x\n",
            "agents.yaml:1: name: tags (!name) are not allowed; remove it",
            id="F1-standard-tag",
        ),
        pytest.param(
            "!!map {name: x}\n",
            "agents.yaml:1: tags (!name) are not allowed; remove it",
            id="F1-tag-at-top",
        ),
        pytest.param(
            "agents:\n  a: &a {name: x}\n  b: *a\n",
            "agents.yaml:2: agents.a: anchors (&name) are not allowed; write the value out",
            id="F2-anchor",
        ),
        pytest.param(
            "name: x\ntools:\n- ls\n- *more\n",
            "agents.yaml:4: tools[1]: aliases (*name) are not allowed; write the value out",
            id="F2-alias",
        ),
        pytest.param(
            "&all\nagents: *all\n",
            "agents.yaml:1: anchors (&name) are not allowed; write the value out",
            id="F3-recursive",
        ),
        pytest.param(
            "&name name: x\n",
            "agents.yaml:1: anchors (&name) are not allowed; write the value out",
            id="F3-anchor-on-a-key",
        ),
        pytest.param(
            "agents:\n  a:\n    <<: {name: x}\n",
            "agents.yaml:3: agents.a: merge keys (<<) are not allowed; write the keys out",
            id="F3-merge",
        ),
        pytest.param(
            "agents:\n  a:\n    name: x\n    model: m\n    name: y\n",
            "agents.yaml:5: agents.a.name: duplicate key, first at line 3; keep one",
            id="F3-duplicate",
        ),
        pytest.param(
            '{"name": "x", "tools": [],\n "name": "y"}',
            "agents.yaml:2: name: duplicate key, first at line 1; keep one",
            id="F3-duplicate-flow",
        ),
        pytest.param(
            "name: x\n1: y\n",
            "agents.yaml:2: the key 1 must be text; put it in quotes",
            id="key-number",
        ),
        pytest.param(
            "name: x\ntrue: y\n",
            "agents.yaml:2: the key true must be text; put it in quotes",
            id="key-bool",
        ),
        pytest.param(
            "name: x\n? [a, b]\n: y\n",
            "agents.yaml:2: a key must be text, not a list or a block",
            id="key-list",
        ),
        pytest.param(
            "name: x\n---\nname: y\n",
            "agents.yaml:2: a second document; keep one to a file",
            id="two-documents",
        ),
        pytest.param(
            "name: x\nmodel: a\x1b[31m\n",
            "agents.yaml:2: the character U+001B is not allowed; remove it",
            id="control-character",
        ),
        pytest.param(
            "name: x\ufffe\ud800\n",
            "agents.yaml:1: the character U+FFFE is not allowed; remove it",
            id="surrogate",
        ),
        pytest.param(
            'name: x\ntools: ["a\\0b"]\n',
            "agents.yaml:2: tools[0]: a control character is not allowed here; remove it",
            id="escaped-NUL",
        ),
        pytest.param(
            "",
            "agents.yaml: is empty; add agents: with at least one agent",
            id="empty",
        ),
        pytest.param(
            "# only a comment\n\n",
            "agents.yaml: is empty; add agents: with at least one agent",
            id="comment-only",
        ),
        pytest.param(
            "---\n...\n",
            "agents.yaml: is empty; add agents: with at least one agent",
            id="empty-document",
        ),
        pytest.param(
            "- name: x\n",
            "agents.yaml: must be a block of keys at the top, not a list",
            id="top-list",
        ),
        pytest.param(
            "hello\n",
            "agents.yaml: must be a block of keys at the top, not a single value",
            id="top-scalar",
        ),
    ],
)
def test_refuses_with_line_and_key_path(text: str, expected: str) -> None:
    assert refusal(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("name: x\nmodel: [a\n", r"agents\.yaml:3: not valid YAML: .+", id="open-list"),
        pytest.param(
            "name: x\n\tmodel: a\n",
            r"agents\.yaml:2: not valid YAML: .+ indent with spaces",
            id="tab",
        ),
        pytest.param("name: a: b\n", r"agents\.yaml:1: not valid YAML: .+", id="two-colons"),
        pytest.param("name: 'x\n", r"agents\.yaml:2: not valid YAML: .+", id="open-quote"),
        pytest.param('name: "\\UFFFFFFFF"\n', r"agents\.yaml(:1)?: not valid YAML.*", id="escape"),
    ],
)
def test_what_is_no_yaml(text: str, expected: str) -> None:
    assert re.fullmatch(expected, refusal(text))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        pytest.param("true", True, id="true"),
        pytest.param("false", False, id="false"),
        pytest.param("null", None, id="null"),
        pytest.param("~", None, id="tilde"),
        pytest.param("0", 0, id="zero"),
        pytest.param("-12", -12, id="negative"),
        pytest.param("1.5", 1.5, id="fraction"),
        pytest.param("1e3", 1000.0, id="exponent"),
        pytest.param("'true'", "true", id="quoted-bool"),
        pytest.param('"12"', "12", id="quoted-number"),
        *(pytest.param(word, word, id=f"F4-{word}") for word in STAY_TEXT),
        pytest.param("1:" * 20_000 + "1", "1:" * 20_000 + "1", id="F4-long-sexagesimal"),
    ],
)
def test_plain_scalars_mean_only_what_they_show(written: str, meant: Any) -> None:
    value = params(written)
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("allow_client_system: no", "must be true or false", id="no-is-not-false"),
        pytest.param("allow_client_system: 1", "must be true or false", id="one-is-not-true"),
        pytest.param("name: true", "must be text; put it in quotes if it is text", id="bool-name"),
        pytest.param("name: 12", "must be text; put it in quotes if it is text", id="number-name"),
        pytest.param(
            "tools: [1.5]", "must be text; put it in quotes if it is text", id="number-tool"
        ),
        pytest.param("max_iterations: '5'", "must be a whole number", id="text-number"),
        pytest.param("max_iterations: 5.0", "must be a whole number", id="fraction"),
        pytest.param("max_iterations: 012", "must be a whole number", id="octal-look"),
        pytest.param("temperature: .inf", "must be a number", id="inf"),
        pytest.param("tools: ls", "must be a list", id="text-for-list"),
        pytest.param("tools: {ls: true}", "must be a list", id="block-for-list"),
        pytest.param("backend: local", "must be a block of keys", id="text-for-block"),
        pytest.param("skills: [a]", "must be a block of keys", id="list-for-block"),
        pytest.param("ttl: 1:30", "not a duration", id="sexagesimal-ttl"),
        pytest.param("ttl: true", "not a duration", id="bool-ttl"),
        pytest.param("ttl: 0", "must be more than 0", id="zero-ttl"),
    ],
)
def test_types_are_strict(text: str, expected: str) -> None:
    assert expected in refusal(f"name: x\n{text}\n" if "name" not in text else text)


def test_size_is_checked_before_parsing() -> None:
    over = "name: x\nsystem_prompt: *" + "a" * LIMIT
    assert refusal(over) == "agents.yaml: larger than 256 kB; split it up"
    wide = "name: x\n# " + "é" * (LIMIT // 2)
    assert refusal(wide) == "agents.yaml: larger than 256 kB; split it up"


def test_a_file_of_exactly_the_limit_loads() -> None:
    head = "name: x\n#"
    assert parse(head + "x" * (LIMIT - len(head))).agent().name == "x"


def test_depth_is_bounded() -> None:
    def nested(depth: int) -> str:
        # the top, model and params are three levels themselves
        return "model: {model: m, params: {a: " + "[" * (depth - 3) + "]" * (depth - 3) + "}}"

    assert parse(nested(32)).default_id == "default"
    message = refusal(nested(33))
    assert message.endswith("nested deeper than 32 levels")
    assert len(message) < 200


@pytest.mark.sisters
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[" * (LIMIT - 1), id="F5-open-lists"),
        pytest.param("{a: " * (LIMIT // 4 - 1), id="F5-open-blocks"),
        pytest.param("- " * (LIMIT // 2 - 1), id="F5-dashes"),
        pytest.param("- a\n" * (LIMIT // 4 - 1), id="F5-flat-list"),
        pytest.param("[" + "[]," * (LIMIT // 3 - 2) + "]", id="F5-empty-lists"),
        pytest.param("".join(f"k{i}: 1\n" for i in range(25_000)), id="unknown-keys"),
        pytest.param("tools: [" + ",".join(f"t{i}" for i in range(35_000)) + ",t0]", id="tools"),
        pytest.param("model: " + "${" * (LIMIT // 2 - 10), id="references"),
        pytest.param(
            "defaults:\n skills: {paths: ["
            + "a," * 20_000
            + "]}\nagents:\n"
            + "".join(f" a{i}: {{}}\n" for i in range(8_000)),
            id="defaults-bomb",
        ),
    ],
)
def test_hostile_files_are_refused_in_bounded_time(text: str) -> None:
    started = time.process_time()
    message = refusal(text)
    # measured: at most 0.3 s with libyaml, 2.1 s without
    assert time.process_time() - started < 20
    assert message.count("\n") <= 20
    assert len(message) < 10_000


def test_byte_order_mark_and_windows_line_ends() -> None:
    text = "\ufeffname: x\r\nmodel: m\r\nnmae: y\r\n"
    assert refusal(text) == "agents.yaml:3: nmae: unknown key; did you mean name?"


def test_json_loads_as_well() -> None:
    text = '{\n "agents": {\n  "a": {"model": "x:y", "tools": ["ls"], "temperature": 0.5}\n }\n}'
    agent = parse(text).agent("a")
    assert (agent.model, agent.tools, agent.temperature) == ("x:y", ("ls",), 0.5)
