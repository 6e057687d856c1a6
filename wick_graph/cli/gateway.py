"""`wick gateway`: agents behind chats; and `--session`, the terminal as one of these chats."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from wick_graph.cli import output, watch
from wick_graph.cli.select import DEFAULT_FILE, opened, read, trusted_file
from wick_graph.errors import ConfigError, missing_extra

if TYPE_CHECKING:
    from wick_graph.config import AgentsFile
    from wick_graph.gateway.gateway import Gateway
    from wick_graph.gateway.messages import OutboundMessage
    from wick_graph.store import SqlSaver
    from wick_graph.store.mailbox import Mailbox

app = typer.Typer(
    name="gateway",
    help="Answer chats on many channels with the agents of agents.yaml.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SESSION: Final[Any] = typer.Option(
    "--session",
    metavar="KEY",
    help="Write in this session of the gateway, such as telegram:42, as the owner.",
)

_CHAT: Final[Any] = typer.Option("--chat", help="Chat in this terminal too, as the owner.")

_DEMO: Final[Any] = typer.Option(
    "--demo", help="Show a chat, a heartbeat, a job and a task, without an account or a file."
)

_MOST: Final[Any] = typer.Option("--limit", "-n", min=1, max=10_000, help="The most to list.")


# --- Run it.


@app.command("run")
def run(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    chat: Annotated[bool, _CHAT] = False,
    demo: Annotated[bool, _DEMO] = False,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    Messages that a crash left open are answered first.
    """
    if demo:
        with tempfile.TemporaryDirectory(prefix="wick-demo-") as folder:
            asyncio.run(_demonstrate(Path(folder)))
        return
    file = trusted_file(config, trust=trust)
    if not (file.channels or chat):
        raise ConfigError(
            "no channel is configured; add channels: to the file, chat in this terminal with "
            "--chat, or see a demonstration with --demo"
        )
    asyncio.run(_serve(file, model, chat=chat))


async def _serve(file: AgentsFile, model: str | None, *, chat: bool) -> None:
    terminal = _Terminal() if chat else None
    made = _gateway()(file, model=model, more=[terminal.channel] if terminal else [])
    end = _ended()
    async with made.running():
        names = ", ".join(made.channels)
        output.say(f"the gateway answers on {names}; Ctrl-C ends it", dim=True)
        await (terminal.talk(end) if terminal else end.wait())


def _gateway() -> type[Gateway]:
    """Return the gateway, whose libraries are optional.

    Raises:
        ConfigError: One is not installed.
    """
    try:
        from wick_graph.gateway.gateway import Gateway
    except ModuleNotFoundError as error:
        raise ConfigError(missing_extra("wick gateway", str(error.name), "gateway")) from None
    return Gateway


def _ended() -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set; a second signal acts at once."""
    end, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        end.set()
        loop.remove_signal_handler(number)

    with suppress(NotImplementedError, RuntimeError):  # no signals there, or not the main thread
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop, number)
    return end


# --- The terminal as a channel.


class _Terminal:
    """Lines of the terminal become messages; what is sent is printed."""

    def __init__(self, session: str = "") -> None:
        from wick_graph.gateway.channels.cli import CliChannel

        self.shown: asyncio.Queue[OutboundMessage] = asyncio.Queue()
        self.channel: Final = CliChannel(self._show, session=session)

    def _show(self, message: OutboundMessage) -> None:
        output.print_line(output.safe(message.content))
        self.shown.put_nowait(message)

    async def talk(self, end: asyncio.Event) -> None:
        """Hand over lines until the input ends, or an event."""
        lines = _lines(asyncio.get_running_loop())
        ending = asyncio.create_task(end.wait())
        try:
            while True:
                reading = asyncio.create_task(lines.get())
                await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
                text = reading.result() if reading.done() else None
                reading.cancel()
                if text is None:
                    return
                if text.strip():
                    await self.channel.ask(text)
        finally:
            ending.cancel()


def _lines(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[str | None]:
    """Return a queue that gets each line of the input, and None at its end."""
    queue: asyncio.Queue[str | None] = asyncio.Queue()

    def put(text: str | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(queue.put_nowait, text)

    def read_lines() -> None:
        with suppress(EOFError, KeyboardInterrupt):
            while True:
                put(watch.line("") if watch.can_ask() else input())
        put(None)

    threading.Thread(target=read_lines, name="wick-lines", daemon=True).start()
    return queue


def converse(
    config: Path, session: str, text: str | None, *, model: str | None, trust: bool
) -> None:
    """Send a text in a session and print the answer; without a text, chat until the input ends.

    Raises:
        ConfigError: The session key is not valid.
    """
    if not session.strip() or len(session) > 4096 or "\0" in session:
        raise ConfigError("--session needs the key of a session, such as telegram:42")
    file = trusted_file(config, trust=trust)

    async def work() -> None:
        terminal = _Terminal(session)
        made = _gateway()(file, channels={"cli": terminal.channel}, model=model, alone=session)
        end = _ended()
        async with made.running():
            if text is None:
                output.say(f"session {session}; /help lists the commands", dim=True)
                await terminal.talk(end)
                return
            asked = await terminal.channel.ask(text)
            ending = asyncio.create_task(end.wait())
            while not ending.done():
                shown = asyncio.create_task(terminal.shown.get())
                await asyncio.wait({shown, ending}, return_when=asyncio.FIRST_COMPLETED)
                if shown.done() and shown.result().reply_to == asked.native_id:
                    break
                shown.cancel()
            ending.cancel()

    asyncio.run(work())


def refuse_with_session(agent: str | None, thread: str | None, *, as_json: bool = False) -> None:
    """Refuse what a session decides itself.

    Raises:
        ConfigError: An agent, a thread or a form is named beside the session.
    """
    named = {"an agent": agent, "--thread": thread, "--json": as_json}
    if wrong := next((name for name, value in named.items() if value), ""):
        raise ConfigError(f"--session does not go with {wrong}; leave one of them out")


# --- The demonstration.


_DEMO_FILE: Final = """\
store: sqlite:///gateway.db
gateway:
  workspace: workspace
  heartbeat: {{every: 5m, first: 2s}}
cron:
  minutes: {{at: "{at}", text: 'calculate(expression="60*24")', to: "cli:local"}}
defaults: {{model: "scripted:demo", tools: [calculate]}}
agents:
  default:
    subagents:
      helper: {{description: It calculates., background: true}}
  helper: {{}}
"""

_DEMO_STEPS: Final = (
    ("What is 21*2?", "a message and its answer", "21*2"),
    ("", "a heartbeat, which looks at HEARTBEAT.md", "365*24"),
    ("", "a job of cron:, at its time", "60*24"),
    (
        'start_async_task(agent="helper", task="What is 17*3?")',
        "a task in the background, which reports back",
        "17*3",
    ),
)


async def _demonstrate(folder: Path) -> None:
    """Show what a gateway does, then chat, if there is a person."""
    from wick_graph.config import load_config

    at = datetime.fromtimestamp(time.time() + 5).astimezone()
    file = folder / "agents.yaml"
    file.write_text(_DEMO_FILE.format(at=at.isoformat()), encoding="utf-8")
    (folder / "workspace").mkdir()
    beat = '# Heartbeat\n\n- calculate(expression="365*24")\n'
    (folder / "workspace" / "HEARTBEAT.md").write_text(beat, encoding="utf-8")
    terminal = _Terminal()
    made = _gateway()(load_config(file), channels={"cli": terminal.channel})
    end = _ended()
    async with made.running():
        seen = ""
        for text, about, wanted in _DEMO_STEPS:
            output.say(f"{about}{f': {text}' if text else ''}", dim=True)
            if text:
                await terminal.channel.ask(text)
            while wanted not in seen:  # a job may come before the answer that is waited for
                seen += (await terminal.shown.get()).content
        if watch.can_ask():
            output.say("now write to it yourself; Ctrl-D ends", dim=True)
            await terminal.talk(end)


# --- Look at it.


@app.command("status")
def status(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the gateways that run, their channels, and what waits."""

    def look(store: SqlSaver) -> dict[str, Any]:
        box, now = store.mailbox, time.time()
        from wick_graph.gateway.people import asking, paired

        return {
            "running": [
                {"process": name, "channels": about.get("channels") or {}}
                for name, about in box.alive().items()
            ],
            **box.counts(),
            "questions": len(box.facts("ask/")),
            "asking": len(asking(box, now)),
            "paired": len(paired(box)),
        }

    found = _looked(config, look)
    if as_json:
        output.print_json(found)
        return
    for one in found["running"]:
        output.print_line(f"running: {one['process']}")
        for name, wrong in one["channels"].items():
            output.print_line(f"  {name}: {wrong or 'ok'}")
    if not found["running"]:
        output.print_line("no gateway runs on this store")
    for name in ("inbox", "outbox"):
        counts = ", ".join(f"{count} {state}" for state, count in sorted(found[name].items()))
        output.print_line(f"{name}: {counts or 'empty'}")
    output.print_line(
        f"{found['questions']} questions wait for an owner, {found['asking']} people ask to be "
        f"paired, {found['paired']} are paired"
    )


_CODE: Final[Any] = typer.Argument(
    metavar="[CODE]", help="The code that the person was given.", show_default=False
)

_ROLE: Final[Any] = typer.Option("--role", help="The person's role.")

_REVOKE: Final[Any] = typer.Option(
    "--revoke", metavar="CHANNEL:ID", help="Take the pairing of this sender back."
)


@app.command("pair")
def pair(
    code: Annotated[str | None, _CODE] = None,
    role: Annotated[Literal["user", "owner"], _ROLE] = "user",
    revoke: Annotated[str | None, _REVOKE] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Admit the person with a code; without one, list who asks and who is paired."""
    from wick_graph.gateway import people

    def work(store: SqlSaver) -> list[dict[str, Any]]:
        box, now = store.mailbox, time.time()
        if revoke is not None:
            channel, _, sender = revoke.partition(":")
            if not people.revoke(channel, sender, box, by="command line"):
                raise ConfigError(f"{revoke!r:.80} is not paired; wick gateway pair lists who is")
            return []
        if code is not None:
            person = people.approve(code, box, now, by="command line", role=role)
            if person is None:
                raise ConfigError("no one has this code, or it is older than an hour")
            return [_person(person, "paired")]
        asks = [_person(one, "asks") for one in people.asking(box, now)]
        return asks + [_person(one, "paired") for one in people.paired(box)]

    found = _looked(config, work)
    if as_json:
        output.print_json(found)
    elif revoke is not None:
        output.print_line(f"{revoke} is not paired any more")
    elif not found:
        output.print_line("no one asks, and no one is paired")
    else:
        rows = [
            [str(one[key]) for key in ("state", "channel", "id", "role", "name", "at")]
            for one in found
        ]
        output.table(["STATE", "CHANNEL", "ID", "ROLE", "NAME", "SINCE OR UNTIL"], rows)


def _person(person: Any, state: str) -> dict[str, Any]:
    return {
        "state": state,
        "channel": person.channel,
        "id": person.sender_id,
        "role": person.role if state == "paired" else "",
        "name": output.safe(person.name),
        "at": _time(person.at),
    }


@app.command("inbox")
def inbox(
    state: Annotated[Literal["open", "done", "refused"] | None, typer.Option("--state")] = None,
    limit: Annotated[int, _MOST] = 20,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the messages that came in, the newest first."""
    _list(config, lambda box: box.inbox(state, limit), as_json)


_RESEND: Final[Any] = typer.Option(
    "--resend", metavar="ROW", help="Send this dead message again, instead of listing."
)


@app.command("outbox")
def outbox(
    state: Annotated[Literal["open", "sent", "dead"] | None, typer.Option("--state")] = None,
    limit: Annotated[int, _MOST] = 20,
    resend: Annotated[int | None, _RESEND] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the messages that go out, the newest first; a dead one can be sent again."""
    if resend is None:
        _list(config, lambda box: box.outbox(state, limit), as_json)
        return
    if not _looked(config, lambda store: store.mailbox.resend(resend)):
        raise ConfigError(f"no dead message has the row {resend}; see wick gateway outbox")
    output.print_line(f"message {resend} is sent again")


def _list(config: Path, find: Callable[[Mailbox], Any], as_json: bool) -> None:
    found = [
        {
            "row": one.row,
            "state": one.state,
            "chat": output.safe(one.chat),
            "at": _time(one.received if hasattr(one, "received") else one.created),
            "tries": one.tries,
            "text": str(one.message.get("content")),
            **({"error": one.error} if getattr(one, "error", "") else {}),
        }
        for one in _looked(config, lambda store: find(store.mailbox))
    ]
    if as_json:
        output.print_json(found)
        return
    rows = [
        [str(one["row"]), one["state"], one["at"], one["chat"], output.shorten(one["text"], 60)]
        for one in found
    ]
    output.table(["ROW", "STATE", "TIME", "CHAT", "TEXT"], rows)


_REMOVE: Final[Any] = typer.Option(
    "--remove", metavar="NAME", help="Remove this job of a chat, instead of listing."
)


@app.command("cron")
def cron(
    remove: Annotated[str | None, _REMOVE] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the jobs of the file and of chats, each with its next time."""
    from wick_graph.gateway.schedule import jobs_of, next_times

    file = read(config)
    if remove is not None:
        if not _looked(config, lambda store: store.mailbox.drop_fact(f"cron/{remove}")):
            raise ConfigError(f"no chat has a job {remove!r:.80}; see wick gateway cron")
        output.print_line(f"the job {remove} is removed")
        return
    facts = _looked(config, lambda store: store.mailbox.facts("cron/"))
    found = []
    for job in jobs_of(file.cron, facts, file.gateway.timezone):
        at = next(next_times(job, time.time()), None)
        found.append(
            {
                "name": job.name,
                "next": "" if at is None else datetime.fromtimestamp(at, job.zone).isoformat(),
                "to": job.config.to or "",
                "text": job.config.text,
            }
        )
    if as_json:
        output.print_json(found)
        return
    rows = [[one["name"], one["next"], one["to"], output.shorten(one["text"], 60)] for one in found]
    output.table(["NAME", "NEXT", "TO", "TEXT"], rows)


def _looked(config: Path, work: Callable[[SqlSaver], Any]) -> Any:
    _gateway()
    with opened(config, make=True) as store:
        assert store is not None  # it is made
        return work(store)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
