"""The command line as a whole: its commands, and how it reports errors."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, NoReturn

import typer

from wick_graph.cli import (
    config,
    debug,
    export,
    gateway,
    graph,
    init,
    output,
    run,
    serve,
    threads,
    worker,
)
from wick_graph.cli.chat import chat
from wick_graph.cli.export import journal
from wick_graph.cli.graph import hooks
from wick_graph.cli.run import resume
from wick_graph.cli.serve import acp, mcp, token_app, tools_app
from wick_graph.cli.threads import store_app
from wick_graph.cli.ui import ui
from wick_graph.errors import WickError

app = typer.Typer(
    name="wick",
    help="Run tool-calling agents; their loop is an explicit graph.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help appears in half the time
    context_settings={"help_option_names": ["--help", "-h"]},
)


app.command("init")(init.init)

app.command("run", options_metavar="[OPTIONS] [AGENT]")(run.run)

app.command("resume", options_metavar="[OPTIONS]")(resume)

app.command("chat")(chat)

app.command("graph")(graph.graph)

app.command("hooks")(hooks)

app.command("journal")(journal)

app.command("debug")(debug.debug)

app.command("export")(export.export)

app.add_typer(threads.app, name="threads")

app.command("serve")(serve.serve)

app.command("worker")(worker.worker)

app.command("runs")(worker.runs)

app.command("ui")(ui)

app.command("mcp")(mcp)

app.command("acp", options_metavar="[OPTIONS]")(acp)

app.add_typer(gateway.app, name="gateway")

app.add_typer(tools_app, name="tools")

app.add_typer(token_app, name="token")

app.add_typer(store_app, name="store")

app.command("validate")(config.validate)

app.command("trust")(config.trust)

app.command("schema")(config.schema)


def main() -> NoReturn:
    """Run the command that the process was started with, and exit with its code."""
    output.prepare()
    output.spare_collections()
    if not sys.warnoptions:  # Python's warnings are for programmers; `python -W` brings them back
        warnings.simplefilter("ignore")
    code = call(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        code = output.PIPE_CLOSED
    except OSError:
        code = code or output.FAILED
    output.silence()
    if "wick_graph.config.code" not in sys.modules:  # so no code of a user's was loaded
        output.settle()
    sys.exit(code)


@cache
def _command() -> Any:
    """Make the command of its functions; that takes longer than most commands do."""
    return typer.main.get_command(app)


def call(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; report every error as a sentence."""
    output.Debug.on = False
    named = output.NAMED.set(output.Named())
    try:
        command = _command()
        with command.make_context("wick", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except BrokenPipeError:
        return output.PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort):
        output.complain("cancelled")
        return output.CANCELLED
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export it
            output.print_line(error.ctx.get_help())  # type: ignore[attr-defined]  # it has one
            return 0
        output.complain(_usage(error))
        return output.REFUSED
    except WickError as error:
        output.report(error)
        return output.exit_code(error)
    except Exception as error:  # a bug here, or in a tool or model during set-up
        output.report(error)
        return output.FAILED
    finally:
        output.NAMED.reset(named)
    return 0


@app.command("version")
def version(
    as_json: Annotated[bool, output.AS_JSON] = False,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Show the versions of wick and what it runs on."""
    import platform
    import sqlite3
    from importlib.metadata import version as version_of

    from wick_graph import __version__

    versions = {
        "wick_graph": __version__,
        "python": platform.python_version(),
        "langgraph": version_of("langgraph"),
        "langchain-core": version_of("langchain-core"),
        "sqlite": sqlite3.sqlite_version,
    }
    if as_json:
        output.print_json(versions)
        return
    for name, number in versions.items():
        output.print_line(f"{name} {number}")


def _usage(error: typer.TyperException) -> str:
    """Write a parser's error as our sentence, with a pointer to the right help."""
    format_message = getattr(error, "format_message", error.__str__)
    text = " ".join(str(format_message()).split()).rstrip(".")
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "wick"
    return f"{text[:1].lower()}{text[1:]}; see {where} --help"
