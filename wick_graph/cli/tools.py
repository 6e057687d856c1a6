"""`wick tools`: Python functions as tools that agents elsewhere call over HTTP."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wick_graph.cli import output

if TYPE_CHECKING:
    from types import ModuleType

PORT: Final = 9100
app = typer.Typer(help="Serve Python functions as tools.", rich_markup_mode=None)
_HOST: Final[Any] = typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
_PORT: Final[Any] = typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes any.")


@app.callback()
def tools() -> None:
    """Serve Python functions as tools."""


@app.command("serve")
def serve(
    module: Annotated[str, typer.Argument(metavar="MODULE", show_default=False)],
    host: Annotated[str, _HOST] = "127.0.0.1",
    port: Annotated[int, _PORT] = PORT,
    debug: Annotated[bool, output.DEBUG] = False,
) -> None:
    """Serve the functions of a module as tools, until SIGTERM or Ctrl-C.

    MODULE is a file such as tools.py, or a module's name; behind a colon, the one function to
    serve. What is marked with @tool is served; if nothing is, every public function. Agents of
    `wick serve` get them by POST /agents/tools/register. Whoever reaches the port may call them.
    """
    from wick_graph.errors import ConfigError

    try:
        from wick_graph.server.options import is_loopback
        from wick_graph.server.tool_server import serve_tools
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"wick tools serve needs {error.name}; "
            "install it with: pip install 'wick-graph[server]'"
        ) from None

    def ready(names: Sequence[str], origin: str) -> None:
        output.say(f"serving {', '.join(names)} on {origin}")
        if is_loopback(host):
            output.say(f"agents call them once {origin} is allowed: wick serve --allow-callback")
        else:
            output.say("they ask for no token: whoever reaches this address may call them")

    serve_tools(functions(module), host, port, ready)


def functions(target: str) -> list[Any]:
    """Return what a target names: `tools.py`, `package.module`, or either with `:name`.

    Raises:
        ConfigError: There is no such module or name, it cannot be loaded, or holds no function.
    """
    from wick_graph.errors import ConfigError
    from wick_graph.tools import FuncTool

    place, _, name = target.partition(":")
    module = _loaded(place)
    if name:
        if not hasattr(module, name):
            raise ConfigError(f"{place} has no {name}")
        return [getattr(module, name)]
    values = [value for key, value in vars(module).items() if not key.startswith("_")]
    found: list[Any] = [value for value in values if isinstance(value, FuncTool)]
    if not found:
        own = (value for value in values if inspect.isfunction(value))
        found = [value for value in own if value.__module__ == module.__name__]
    if not found:
        raise ConfigError(f"{place} has no public function; write one, or mark one with @tool")
    return found


def _loaded(place: str) -> ModuleType:
    from wick_graph.errors import ConfigError

    path = Path(place)
    try:
        if path.suffix != ".py":
            sys.path.insert(0, str(Path.cwd()))
            return importlib.import_module(place)
        if not path.is_file():
            raise ConfigError(f"there is no file {place}")
        spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.path.insert(0, str(path.resolve().parent))  # as Python does with a script
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:  # whatever the module raises
        raise ConfigError(f"{place} cannot be loaded ({type(error).__name__}: {error})") from error
    return module
