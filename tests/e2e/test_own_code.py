"""Code of one's own that agents.yaml names, through each door: command line, Python, server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Folder
from wick_graph import BaseHook, Server, load
from wick_graph.backends import LocalBackend
from wick_graph.cli.app import call
from wick_graph.config import code as loader
from wick_graph.config import digest_of, load_config, trust
from wick_graph.errors import ConfigError
from wick_graph.hooks import FilesystemHook
from wick_graph.server import ServerOptions, Service
from wick_graph.service import service as service_module

MODULE = '''
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool as langchain_tool

from wick_graph import BaseHook, tool
from wick_graph.backends import LocalBackend
from wick_graph.hooks import FilesystemHook
from wick_graph.testing import ScriptedModel, call


def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@langchain_tool
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


@tool(replay="safe")
async def whisper(text: str) -> str:
    """Whisper."""
    return text.lower()


ALL = [pay, (shout), whisper]


class Polite(BaseHook):
    name = "polite"

    def __init__(self, word="please", inner=None):
        self.word, self.inner = word, inner

    def modify_request(self, request, ctx):
        return request.append_system(f"Say {self.word}.")


def maker(word):
    made = Polite(word)
    made.name = f"made-{word}"
    return made


async def later():
    return Polite()


def fails():
    raise RuntimeError("no key")


ready = Polite("ready")
opened = []


class Held(BaseHook):
    """Holds something until it is closed."""

    def __init__(self, name="held"):
        self.name = name
        opened.append(name)

    def close(self):
        opened.remove(self.name)


always = Held("always")


def clumsy():
    made = Held("clumsy")
    made.close = lambda: opened.remove("nothing")
    return made


class Own(AgentMiddleware):
    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner


def files(folder):
    return FilesystemHook(LocalBackend(folder, execute=None))


def model(steps=("done",)):
    return ScriptedModel([call("pay", amount=3), *steps])


instance = ScriptedModel(["an object"] * 9)
counted = []


def costly():
    counted.append(1)
    return model()
'''
PREFIX = "own_e2e"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A folder with a module; what is imported from it is forgotten afterwards."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(loader._BESIDE, "hashes", {})
    monkeypatch.setattr(loader._BESIDE, "roots", {})
    made = tmp_path / "app"
    made.mkdir()
    (made / f"{PREFIX}.py").write_text(MODULE, "utf-8")
    yield Folder(made)
    for name in [name for name in sys.modules if name.startswith(PREFIX)]:
        del sys.modules[name]


def loaded(folder: Folder, text: str, **more: Any) -> Any:
    folder.write(agents=text)
    return load(folder.path / "agents.yaml", **more)


def test_hooks_that_are_made_for_a_check_are_closed(folder: Folder) -> None:
    text = (
        f"agents: {{default: {{model: 'scripted:demo', subagents: {{below: {{description: B}}}}}}, "
        f"below: {{model: 'scripted:demo', hooks: [{{use: '{PREFIX}:Held'}}, "
        f"{{use: '{PREFIX}:always'}}]}}}}\n"
    )
    with loaded(folder, text) as agents:
        assert call(["validate", "-c", str(folder.path / "agents.yaml"), "--trust"]) == 0
        opened = sys.modules[PREFIX].opened
        assert opened == ["always"], "validate made one"
        assert agents["default"].name == "default"
        assert opened == ["always"], "so did the check of the agents below"
        assert agents["below"].name == "below"
        assert opened == ["always", "held"], "the agent's own stays open"
    text = f"agents: {{a: {{model: 'scripted:demo', hooks: [{{use: '{PREFIX}:clumsy'}}]}}}}\n"
    folder.write(agents=text)
    assert call(["validate", "-c", str(folder.path / "agents.yaml"), "--trust"]) == 0


def test_a_call_that_waits_is_approved_in_the_next_process(folder: Folder) -> None:
    text = (
        f"agents: {{default: {{model: {{use: '{PREFIX}:model'}}, tools: ['{PREFIX}:pay'], "
        "approvals: {pay: amount > 2}}}\n"
    )
    folder.write(agents=text)
    assert folder.wick("run", "-t", "mine", "Pay.").code == 2
    assert folder.wick("trust").code == 0
    assert "interrupted" in folder.wick("run", "-t", "mine", "Pay.").err
    with (folder.path / f"{PREFIX}.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    refused = folder.wick("resume", "mine", "--all-approve")
    assert (refused.code, "is not trusted in its present state" in refused.err) == (2, True)
    done = folder.wick("resume", "mine", "--all-approve", "--trust")
    assert (done.code, done.out.strip()) == (0, "done"), done.err
    assert "paid 3" in done.err
    for command in (["graph"], ["hooks"], ["debug", "mine"]):
        refused = folder.wick(*command)
        assert (refused.code, "is not trusted" in refused.err) == (2, True), command
    assert folder.wick("trust").code == 0
    assert "pay" in folder.wick("graph").out
    assert json.loads(folder.wick("validate", "--json").out)["agents"][0]["model"] == (
        f"{PREFIX}:model"
    )


FORMS = f"""\
defaults:
  model: {{use: '{PREFIX}:instance'}}
  context_window: 5000
agents:
  default:
    tools: [calculate, '{PREFIX}:ALL']
    hooks:
      - {{use: '{PREFIX}:Polite', args: {{word: thanks, inner: {{use: '{PREFIX}:ready'}}}}}}
      - {{use: '{PREFIX}:maker', args: {{word: two}}}}
    middleware: [{{use: '{PREFIX}:Own', args: {{inner: {{use: '{PREFIX}:Polite'}}}}}}]
    subagents: {{below: {{description: Helps.}}}}
    budget: {{tokens: 9}}
  below:
    tools: ['{PREFIX}:whisper']
    hooks: [{{use: '{PREFIX}:ready'}}]
"""


def test_each_form_is_taken_where_it_belongs(folder: Folder) -> None:
    def extra(text: str) -> str:
        """Do more."""
        return text

    class Last(BaseHook):
        name = "last"

    with loaded(folder, FORMS, tools=[extra], hooks=[Last()]) as agents:
        agent, below = agents["default"], agents["below"]
        names = [*agent.spec.toolbox.at({})]
        assert names[:5] == ["calculate", "pay", "shout", "whisper", "extra"]
        hooks = [*agent.spec.hooks.names]
        wanted = ["tracing", "todolist", "polite", "made-two", "Own", "last", "summarization"]
        assert hooks == [*wanted, "budget"]
        assert agent.hooks[2].inner is below.hooks[2]
        assert agent.hooks[4].middleware.inner.word == "please"
        assert agent.spec.model.context_window == 5000
        assert [*below.spec.toolbox.at({})][:2] == ["whisper", "extra"]
        assert "last" in below.spec.hooks.names
        assert agent.invoke("?").text == "an object"


def test_a_model_is_made_once_for_each_agent_also_below_others(folder: Folder) -> None:
    own = f"model: {{use: '{PREFIX}:costly'}}"
    agents = [
        f"  {name}: {{{own}, subagents: {{{below}: {{description: x}}}}}}"
        for name, below in ("ab", "bc", "ca")
    ]
    with loaded(folder, "\n".join(["agents:", *agents])) as made:
        assert [made[name].name for name in "abc"] == ["a", "b", "c"]
        assert sys.modules[PREFIX].counted == [1, 1, 1]


WRONG = {
    "hooks: [{use: 'P:number'}]": "hooks[0]: P has no number",
    "hooks: [{use: 'P:pay', args: {amount: 1}}]": "hooks[0]: a str is not a hook",
    "hooks: [{use: 'P:Polite', args: {nope: 1}}]": "hooks[0]: P:Polite does not take these "
    "arguments: got an unexpected keyword argument 'nope'",
    "hooks: [{use: 'P:maker'}]": "hooks[0]: P:maker does not take these arguments: missing",
    "hooks: [{use: 'P:later'}]": "hooks[0]: P:later is async; name a plain function",
    "hooks: [{use: 'P:fails'}]": "hooks[0]: P:fails() failed (RuntimeError: no key)",
    "hooks: [{use: 'P:ready', args: {word: x}}]": "hooks[0]: P:ready is an object, which takes no",
    "hooks: [{use: 'P:Own'}]": "hooks[0]: P:Own is a LangChain middleware; write it under",
    "hooks: [{use: 'P:Polite'}, {use: 'P:ready'}]": "hooks: two hooks are named 'polite'",
    "hooks: [{use: 'P:Polite', args: {inner: {use: './x:y'}}}]": 'hooks[0].args: "./x:y" is a path',
    "hooks: [{use: 'P:Polite', args: {inner: {use: 'P:_x'}}}]": 'hooks[0].args: "P:_x" is private',
    "middleware: [{use: 'P:Polite'}]": "middleware[0]: ",
    "tools: ['P:Polite']": "tools[0]: P:Polite: ",
    "tools: ['P:pay', 'P:ALL']": "tools: two tools are called pay",
    "model: {use: 'P:pay', args: {amount: 1}}": "model: P:pay: it is a name, not a chat model",
    "model: {use: 'P:Polite'}": "model: P:Polite: model must be",
}


@pytest.mark.parametrize("keys", WRONG)
def test_what_does_not_fit_gets_one_sentence_from_run_and_validate(
    folder: Folder, keys: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = "" if "model" in keys else "    model: scripted:demo\n"
    text = f"agents:\n  default:\n{model}    {keys}\n".replace("P:", f"{PREFIX}:")
    wanted = WRONG[keys].replace("P:", f"{PREFIX}:").replace("P has", f"{PREFIX} has")
    with pytest.raises(ConfigError) as caught, loaded(folder, text) as agents:
        agents["default"]
    assert wanted in str(caught.value)
    place = f"agents.yaml:{3 if 'model' in keys else 4}: agents.default.{wanted.split(':')[0]}"
    assert place in str(caught.value)
    path = str(folder.path / "agents.yaml")
    call(["trust", "-c", path])
    assert call(["validate", "-c", path]) == 2
    assert wanted in capsys.readouterr().err


async def test_a_server_loads_a_changed_module_once_it_is_trusted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "_READ", 0.01)
    text = f"agents: {{default: {{model: {{use: '{PREFIX}:instance'}}}}}}\n"
    path = folder.write(agents=text).path / "agents.yaml"
    made = Service(load_config(path), ServerOptions(auth=False, reload=True), path=path)
    async with made.running():
        before = await made.local.agents.ready("default")
        assert (await before.ainvoke("?")).text == "an object"
        module = folder.path / f"{PREFIX}.py"
        module.write_text(MODULE.replace("an object", "a new one"), "utf-8")
        while not any("is not trusted" in one.getMessage() for one in caplog.records):
            await asyncio.sleep(0.01)
        assert await made.local.agents.ready("default") is before
        trust(load_config(path), digest_of(load_config(path)))
        path.write_text(text, "utf-8")  # as the message says
        while (agent := await made.local.agents.ready("default")) is before:
            await asyncio.sleep(0.01)
        assert (await agent.ainvoke("?")).text == "a new one"


async def test_what_a_program_adds_is_served_and_survives_a_reload(folder: Folder) -> None:
    def extra(text: str) -> str:
        """Do more."""
        return text

    class Last(BaseHook):
        name = "last"

    text = "agents: {default: {model: 'scripted:demo'}}\n"
    agents = loaded(folder, text, tools=[extra], hooks=[Last()])
    service = Server(agents, auth=False).service
    try:
        async with service.using("anna") as anna:
            agent = await anna.agents.ready("default")
            assert "extra" in agent.spec.toolbox.at({})
            assert "last" in agent.spec.hooks.names
        _, again = service._built(folder.path / "agents.yaml")
        assert "last" in again["default"].spec.hooks.names
    finally:
        service.close()


@pytest.mark.parametrize("how", ["file", "program"])
async def test_tenants_never_share_the_files_of_a_hook(folder: Folder, how: str) -> None:
    hook = f"{{use: '{PREFIX}:files', args: {{folder: {folder.path}}}}}"
    hooks = f", hooks: [{hook}]" if how == "file" else ""
    text = f"agents: {{default: {{model: 'scripted:demo'{hooks}}}}}\n"
    agents = loaded(folder, text)
    if how == "program":
        given = [FilesystemHook(LocalBackend(folder.path, execute=None))]
        agents = loaded(folder, text, hooks=given)
    service = Server(agents).service
    try:
        assert "read_file" in service.local.agents["default"].spec.toolbox.at({})
        async with service.using("anna") as anna:
            with pytest.raises(Exception, match="cannot be built"):
                await anna.agents.ready("default")
    finally:
        service.close()


def test_what_a_program_adds_is_checked(folder: Folder) -> None:
    text = "agents: {default: {model: 'scripted:demo'}}\n"
    for more, said in (
        ({"tools": [5]}, "5 is not a tool"),
        ({"hooks": [5]}, "a int is not a hook"),
        ({"hooks": BaseHook}, "hooks must be a list"),
    ):
        with pytest.raises(ConfigError, match=said):
            loaded(folder, text, **more)
