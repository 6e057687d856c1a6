"""`wick gateway`: agents behind chats; and `--session`, the terminal as one of these chats."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    from wick_graph.store.mailbox import Mailbox, Row

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

_DEMO: Final[Any] = typer.Option(
    "--demo", help="Show a chat, a heartbeat, a job and a task, without an account or a file."
)


# --- Run it.


@app.command("run")
def run(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    demo: Annotated[bool, _DEMO] = False,
    model: Annotated[str | None, output.MODEL] = None,
    trust: Annotated[bool, output.TRUST] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C.

    Messages that a crash left open are answered first.
    """
    with output.terminable():
        if demo:
            with tempfile.TemporaryDirectory(prefix="wick-demo-") as folder:
                asyncio.run(_demonstrate(Path(folder)))
            return
        file = trusted_file(config, trust=trust)
        if not file.channels:
            raise ConfigError(
                "no channel is configured; add channels: to the file, or see a demonstration with "
                "--demo"
            )
        asyncio.run(serve(file, model))


async def serve(file: AgentsFile, model: str | None = None) -> None:
    """Run the gateway of a file until the task is cancelled."""
    made = _gateway()(file, model=model)
    async with made.running():
        names = ", ".join(made.channels)
        output.say(f"the gateway answers on {names}; Ctrl-C ends it", dim=True)
        await _until_stopped(asyncio.Event().wait())


def _gateway() -> type[Gateway]:
    """Return the gateway; its libraries are optional.

    Raises:
        ConfigError: One is not installed.
    """
    try:
        from wick_graph.gateway.gateway import Gateway
    except ModuleNotFoundError as error:
        raise ConfigError(missing_extra("wick gateway", str(error.name), "gateway")) from None
    return Gateway


async def _until_stopped(work: Awaitable[Any]) -> None:
    """Wait for some work, or Ctrl-C or SIGTERM; a second signal acts at once."""
    with suppress(asyncio.CancelledError):  # `asyncio.run` cancels its task at a signal
        await work


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

    async def talk(self) -> None:
        """Hand over lines until the input ends."""
        lines: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(text: str | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(lines.put_nowait, text)

        def read_lines() -> None:
            with suppress(EOFError, KeyboardInterrupt):
                while True:
                    put(watch.line("") if watch.can_ask() else input())
            put(None)

        threading.Thread(target=read_lines, name="wick-lines", daemon=True).start()
        while (text := await lines.get()) is not None:
            if text.strip():
                await self.channel.ask(text)

    async def ask(self, text: str, box: Mailbox) -> None:
        """Send a text, and wait until its answer is shown, or it has ended without one."""
        native = (await self.channel.ask(text)).native_id
        while True:
            with suppress(TimeoutError):
                if (await asyncio.wait_for(self.shown.get(), 1.0)).reply_to == native:
                    return
                continue
            waits = [one.message for one in await box.run(box.inbox, "open", 1000)]
            waits += [one.message for one in await box.run(box.outbox, "open", 1000)]
            chats = [one["chat_id"] for one in waits]
            if self.channel.chat not in chats:  # a tool has answered, or the message was refused
                return


def converse(
    config: Path,
    session: str,
    text: str | None,
    *,
    model: str | None,
    trust: bool,
    beside: Mapping[str, Any],
) -> None:
    """Send a text in a session and print the answer; without a text, chat until the input ends.

    Raises:
        ConfigError: The key is not valid, or what a session decides itself is given beside it.
    """
    if wrong := next((name for name, value in beside.items() if value), ""):
        raise ConfigError(f"--session does not go with {wrong}; leave one of them out")
    if not session.strip() or len(session) > 4096 or "\0" in session:
        raise ConfigError("--session needs the key of a session, such as telegram:42")
    file = trusted_file(config, trust=trust)

    async def work() -> None:
        terminal = _Terminal(session)
        made = _gateway()(file, channels={"cli": terminal.channel}, model=model, alone=session)
        async with made.running():
            if text is not None:
                await terminal.ask(text, made.mailbox)
                return
            output.say(f"session {session}; /help lists the commands", dim=True)
            await _until_stopped(terminal.talk())

    with output.terminable():
        asyncio.run(work())


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
            await _until_stopped(terminal.talk())


# --- Look at it.


@contextmanager
def _mailbox(config: Path) -> Iterator[Mailbox]:
    _gateway()
    with opened(config, make=True) as store:
        assert store is not None  # it is made
        yield store.mailbox


def _show(found: Sequence[dict[str, Any]], columns: str, *, as_json: bool, none: str) -> None:
    """Print what was found: as JSON, or some of it as a table."""
    if as_json:
        output.print_json(found)
    elif not found:
        output.print_line(none)
    else:
        names = columns.split()
        rows = [[output.shorten(str(one[name]), 60) for name in names] for one in found]
        output.table([name.upper() for name in names], rows)


def _time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


@app.command("status")
def status(
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the gateways that run, their channels, and what waits."""
    with _mailbox(config) as box:
        from wick_graph.gateway.people import asking, paired

        alive, boxes = box.alive(), box.counts()
        running = [
            {"process": name, "channels": about.get("channels") or {}}
            for name, about in alive.items()
        ]
        waits = {
            "questions": len(box.facts("ask/")),
            "asking": len(asking(box, time.time())),
            "paired": len(paired(box)),
        }
    if as_json:
        output.print_json({"running": running, **boxes, **waits})
        return
    for one in running:
        output.print_line(f"running: {one['process']}")
        channels: Any = one["channels"]
        for name, wrong in channels.items():
            output.print_line(f"  {name}: {wrong or 'ok'}")
    if not running:
        output.print_line("no gateway runs on this store")
    for name, states in boxes.items():
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        output.print_line(f"{name}: {counts or 'empty'}")
    output.print_line(
        "{questions} questions wait for an owner, {asking} people ask to be paired, {paired} are "
        "paired".format(**waits)
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
    with _mailbox(config) as box:
        from wick_graph.gateway import people

        now, by, none = time.time(), "command line", "no one asks, and no one is paired"
        found = people.asking(box, now) + people.paired(box)
        if revoke is not None:
            channel, _, sender = revoke.partition(":")
            if not people.revoke(channel, sender, box, by=by):
                raise ConfigError(f"{revoke!r:.80} is not paired; wick gateway pair lists who is")
            found, none = [], f"{revoke} is not paired any more"
        elif code is not None:
            person = people.approve(code, box, now, by=by, role=role)
            if person is None:
                raise ConfigError("no one has this code, or it is older than an hour")
            found = [person]
    rows = [
        {
            "state": "asks" if one.code else "paired",
            "channel": one.channel,
            "id": one.sender_id,
            "role": "" if one.code else one.role,
            "name": output.safe(one.name),
            "at": _time(one.at),
        }
        for one in found
    ]
    _show(rows, "state channel id role name at", as_json=as_json, none=none)


_STATE: Final[Any] = typer.Option("--state", help="Those in this state.")

_MOST: Final[Any] = typer.Option("--limit", "-n", min=1, max=10_000, help="The most to list.")

_RESEND: Final[Any] = typer.Option(
    "--resend", metavar="ROW", help="Send this dead message again, instead of listing."
)


@app.command("inbox")
def inbox(
    state: Annotated[Literal["open", "done", "refused"] | None, _STATE] = None,
    limit: Annotated[int, _MOST] = 20,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the messages that came in, the newest first."""
    with _mailbox(config) as box:
        _list(box.inbox(state, limit), as_json=as_json)


@app.command("outbox")
def outbox(
    state: Annotated[Literal["open", "sent", "dead"] | None, _STATE] = None,
    limit: Annotated[int, _MOST] = 20,
    resend: Annotated[int | None, _RESEND] = None,
    config: Annotated[Path, output.CONFIG] = DEFAULT_FILE,
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """List the messages that go out, the newest first; a dead one can be sent again."""
    with _mailbox(config) as box:
        if resend is None:
            _list(box.outbox(state, limit), as_json=as_json)
            return
        if not box.resend(resend):
            raise ConfigError(f"no dead message has the row {resend}; see wick gateway outbox")
    output.print_line(f"message {resend} is sent again")


def _list(rows: Sequence[Row], *, as_json: bool) -> None:
    found = [
        {
            "row": one.row,
            "state": one.state,
            "at": _time(one.at),
            "chat": output.safe(one.chat),
            "tries": one.tries,
            "text": str(one.message.get("content")),
            **({"error": one.error} if one.error else {}),
        }
        for one in rows
    ]
    _show(found, "row state at chat text", as_json=as_json, none="there are no messages")


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
    file = read(config)
    with _mailbox(config) as box:
        from wick_graph.gateway.schedule import jobs_of, next_time

        if remove is not None:
            if not box.drop_fact(f"cron/{remove}"):
                raise ConfigError(f"no chat has a job {remove!r:.80}; see wick gateway cron")
            output.print_line(f"the job {remove} is removed")
            return
        jobs = jobs_of(file.cron, box.facts("cron/"), file.gateway.timezone)
    found = [
        {
            "name": job.name,
            "next": next_time(job, time.time()),
            "to": job.config.to or "",
            "text": job.config.text,
        }
        for job in jobs
    ]
    _show(found, "name next to text", as_json=as_json, none="there are no jobs")
