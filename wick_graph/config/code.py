"""One's own code that a file names as `module:name`: found without running it, and loaded.

Modules beside the file are loaded from their source alone, and only as they were hashed: Python
would also run what lies in `__pycache__`, and modules that appear later.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from wick_graph.errors import ConfigError, WickError, did_you_mean

MODULE: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")

MOST_MODULES: Final = 2_000

MOST_BYTES: Final = 2**20
"""Bytes of one module."""

INIT: Final = "__init__.py"


_IMPORTS: Final[dict[tuple[bytes, str], tuple[str, ...]]] = {}
"""What a source in a package imports, by its hash."""


def split(reference: str) -> tuple[str, str]:
    """Split `module:name`; its form was checked when the file was read."""
    module, _, name = reference.partition(":")
    return module, name


# --- Find the modules that a file names, and those that they import, without running them.


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules beside a file that it may load."""

    hashes: Mapping[str, bytes] = field(default_factory=dict)
    """The hash of each, by path."""
    roots: tuple[str, ...] = ()
    """The folders that hold them."""


def hashed_modules(base: Path, names: Iterable[str]) -> Modules:
    """Hash each file beside `base` that importing these modules may run.

    Installed modules belong to the host, and are left out.

    Raises:
        ConfigError: A name means two modules, or there is too much to read.
    """
    found: dict[str, bytes] = {}
    roots: dict[str, None] = {}
    left, seen = list(names), set[str]()
    known: dict[str, Path | None] = {}
    while left:
        name = left.pop()
        if name in seen or not MODULE.fullmatch(name.removesuffix(".*")):
            continue
        seen.add(name)
        if (top := name.partition(".")[0]) not in known:
            known[top] = root_of(top, base)
        root = known[top]
        for package, path in _files(root, name.removesuffix(".*")) if root is not None else ():
            if name.endswith(".*") and path.name == INIT:  # its `__all__` may name any of them
                left += (f"{package}.{one.stem}" for one in sorted(path.parent.glob("*.py")))
            roots[str(root)] = None
            if str(path) in found:
                continue
            source = _read(path)
            digest = found[str(path)] = hashlib.sha256(source).digest()
            if len(found) > MOST_MODULES:
                raise ConfigError(f"{name} imports more than {MOST_MODULES:,} modules beside it")
            if (digest, package) not in _IMPORTS:
                if len(_IMPORTS) > MOST_MODULES:
                    _IMPORTS.clear()
                _IMPORTS[digest, package] = (*_imports(source, package),)
            left += _IMPORTS[digest, package]
    return Modules(dict(sorted(found.items())), tuple(roots))


def find_module(name: str, base: Path) -> Path | None:
    """Return the file of a module beside `base`; None if the module is installed.

    Raises:
        ConfigError: There is no such module, or its name means two.
    """
    top = name.partition(".")[0]
    if (root := root_of(top, base)) is None:
        if _elsewhere(top, base, Path()) is None:
            raise ConfigError(_missing(name, base))
        return None
    files = [path for _, path in _files(root, name)]
    if not files or _name_of(root, files[-1]) != name:
        raise ConfigError(_missing(name, base))
    return files[-1]


def look_up(reference: str, base: Path) -> None:
    """Check without running anything that a module exists, and that it defines a name.

    Raises:
        ConfigError: It does not, as far as its source shows.
    """
    module, name = split(reference)
    path = find_module(module, base)
    if path is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_read(path))
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{module} cannot be loaded ({reason})") from None
    names = {*_defined(tree.body)}
    if not names & {name, "*", "__getattr__"} and not path.with_name(name).is_dir():
        raise ConfigError(f"{module} has no {name}{did_you_mean(name, names)}")


def _defined(body: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names that statements define, in functions and classes left out."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        yield from _defined(ast.iter_child_nodes(node))


def root_of(top: str, base: Path) -> Path | None:
    """Return the project's folder that holds a module; None if it is installed or missing.

    Raises:
        ConfigError: The module is beside the file, and installed too.
    """
    base = _real(base)
    here = next((one for one in (base / top / INIT, base / f"{top}.py") if one.is_file()), None)
    elsewhere = _elsewhere(top, base, Path())
    if here is not None and elsewhere is not None:
        raise _two(top, here, elsewhere)
    if here is not None or (elsewhere is None and (base / top).is_dir()):
        return base
    if elsewhere is None or base not in Path(elsewhere).parents or _is_hosts(elsewhere):
        return None
    return _holder(elsewhere)  # installed from this project


def installed_code(base: Path, names: Iterable[str]) -> tuple[str, ...]:
    """List the files, and folders, which end in `/`, of installed modules outside Python's own.

    Raises:
        ConfigError: A name means two modules.
    """
    tops = dict.fromkeys(name.partition(".")[0] for name in names)
    places = (_elsewhere(top, base, Path()) for top in tops if root_of(top, base) is None)
    found: list[str] = []
    for path in (Path(one) for one in places if one and one.startswith("/") and not _is_hosts(one)):
        single = [str(path), f"{path.parent}/__pycache__/"]  # Python runs what it caches there
        found += [f"{path.parent}/"] if path.name == INIT else single
    return tuple(found)


def one_only(top: str, folder: Path) -> None:
    """Refuse a module of a folder that has the name of another module.

    Raises:
        ConfigError: There are two; the text names both.
    """
    here = PathFinder.find_spec(top, [str(folder)])
    elsewhere = _elsewhere(top, folder)
    if here is not None and elsewhere is not None:
        origin = here.origin or next(iter(here.submodule_search_locations or ()), top)
        raise _two(top, Path(os.path.realpath(origin)), elsewhere)


def _two(top: str, here: Path, elsewhere: str) -> ConfigError:
    return ConfigError(f"{top} names two modules, {here} and {elsewhere}; rename one")


def _missing(name: str, folder: Path) -> str:
    return f"there is no module {name} in {_real(folder)} or among the installed ones"


def _elsewhere(top: str, *folders: Path) -> str | None:
    """Return where Python finds a module, these folders left out; None if nowhere."""
    apart = {str(_real(folder)) for folder in folders}
    paths = [one for one in map(os.path.realpath, sys.path) if one not in apart]
    spec = PathFinder.find_spec(top, paths)
    for finder in sys.meta_path if spec is None else ():  # editable packages have their own
        if finder is not PathFinder and not isinstance(finder, _Beside):
            spec = spec or finder.find_spec(top, None)
    if spec is None:
        return None
    if spec.origin is None:  # a package without __init__.py; any folder of data looks like one
        places = map(os.path.realpath, spec.submodule_search_locations or ())
        return next((one for one in places if _is_hosts(one)), None)
    if not spec.has_location:
        return f"Python's own {top}"
    origin = os.path.realpath(spec.origin)
    return None if str(_holder(origin)) in apart else origin


def _holder(origin: str) -> Path:
    path = Path(origin)
    return path.parents[1] if path.name == INIT else path.parent


def _is_hosts(origin: str) -> bool:
    """Say whether a module belongs to the Python installation."""
    keys = ("stdlib", "platstdlib", "purelib", "platlib")
    return any(_real(Path(sysconfig.get_paths()[key])) in Path(origin).parents for key in keys)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _files(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    """Yield the files that importing a dotted name runs, each with the name of its package."""
    folder, package = root, ""
    for part in name.split("."):
        inner = f"{package}.{part}" if package else part
        if (folder / part / INIT).is_file():
            yield inner, folder / part / INIT
        elif (folder / f"{part}.py").is_file():
            yield package, folder / f"{part}.py"
            return
        elif not (folder / part).is_dir():
            return
        folder, package = folder / part, inner


def _name_of(root: Path, path: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if path.name == INIT else parts)


def _read(path: Path) -> bytes:
    if not path.is_file():  # opening a pipe would wait for its writer
        raise ConfigError(f"{path} is not a regular file")
    try:
        with path.open("rb") as file:
            source = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror})") from None
    if len(source) > MOST_BYTES:
        raise ConfigError(f"{path} is larger than {MOST_BYTES // 1024} kB; split the module")
    return source


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Yield the modules that a source may import; a name too many does no harm."""
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if node.level else []
            parts = parts[: len(parts) - node.level + 1] if node.level else []
            module = ".".join((*parts, *((node.module,) if node.module else ())))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _parsed(source: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # loading the module shows them
            return ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return ast.Module([], [])  # loading the module says so


# --- Load modules: those beside a file from their source, as it was hashed.


class _Beside(MetaPathFinder):
    """Find the modules that were hashed; it goes before Python's own finders.

    Another module that appears beside a file is never loaded, even in place of a hashed one.
    """

    def __init__(self) -> None:
        self.hashes: dict[str, bytes] = {}
        self.roots: dict[str, None] = {}
        self._lock = threading.Lock()

    def allow(self, modules: Modules) -> None:
        """Let modules be loaded; forget the loaded ones if any has changed."""
        hashes = modules.hashes
        with self._lock:
            if any(self.hashes.get(path, digest) != digest for path, digest in hashes.items()):
                for name, module in [*sys.modules.items()]:
                    if (getattr(module, "__file__", None) or "") in hashes:
                        del sys.modules[name]
            self.hashes = {**self.hashes, **hashes}
            self.roots = {**self.roots, **dict.fromkeys(modules.roots)}
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a hashed module; None for every other one."""
        short = name.rpartition(".")[2]
        for folder in self.roots if path is None else path:
            inner = str(Path(folder, short))
            package, module = str(Path(inner, INIT)), f"{inner}.py"
            if package in self.hashes:
                loader = _Source(name, package)
                return spec_from_file_location(
                    name, package, loader=loader, submodule_search_locations=[inner]
                )
            if module in self.hashes:
                return spec_from_file_location(name, module, loader=_Source(name, module))
            if self._holds(inner):
                spec = ModuleSpec(name, None, is_package=True)
                spec.submodule_search_locations = [inner]
                return spec
        if any(map(self._holds, path or ())):  # Python would find others in the package's folder
            raise ModuleNotFoundError(f"No module named {name!r} was checked", name=name)
        return None

    def _holds(self, folder: str) -> bool:
        return any(one.startswith(f"{folder}{os.sep}") for one in self.hashes)


class _Source(SourceFileLoader):
    """Compile a module from the source that was hashed, without Python's cache."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile it.

        Raises:
            ImportError: It is not as it was hashed.
        """
        source = _read(Path(self.path))
        if hashlib.sha256(source).digest() != _BESIDE.hashes.get(self.path):
            raise ImportError(f"{self.path} has changed since it was checked; start again")
        code: CodeType = self.source_to_code(source, self.path)
        return code


_BESIDE: Final = _Beside()


def load_object(reference: str, base: Path, modules: Modules) -> Any:
    """Return what `module:name` names.

    Args:
        reference: The name, with a module beside `base` or an installed one.
        base: The folder of the file that names it.
        modules: What `hashed_modules` returned for it.

    Raises:
        ConfigError: It does not exist, or its module cannot be loaded.
    """
    place, name = split(reference)
    path = find_module(place, base)
    if path is None and str(_real(Path())) in map(os.path.realpath, sys.path):
        one_only(place.partition(".")[0], _real(Path()))  # `python -m` puts it before all others
    _BESIDE.allow(modules)
    module = imported(place, place, base)
    origin = getattr(module, "__file__", None)
    if path is not None and origin is not None and os.path.realpath(origin) != str(_real(path)):
        raise _two(place, path, origin)
    return named(module, name, place)


def named(module: ModuleType, name: str, place: str) -> Any:
    """Return what a module holds under a name.

    Raises:
        ConfigError: It holds nothing there.
    """
    try:
        return getattr(module, name)
    except AttributeError:
        hint = did_you_mean(name, [known for known in vars(module) if known[0] != "_"])
        raise ConfigError(f"{place} has no {name}{hint}") from None


def imported(name: str, place: str, folder: Path) -> ModuleType:
    """Import a module.

    Args:
        name: Its name.
        place: How it was written, for errors.
        folder: Where it is expected besides the installed ones, for errors.

    Raises:
        ConfigError: It does not exist, or cannot be loaded.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in (name, name.partition(".")[0]):
            raise ConfigError(_missing(name, folder)) from error
        raise ConfigError(f"{place} needs {error.name}, which is not installed") from error
    except (Exception, SystemExit) as error:  # whatever the module raises
        raise ConfigError(f"{place} cannot be loaded ({type(error).__name__}: {error})") from error


def called(
    found: Any, source: str, args: Sequence[Any] = (), named: Mapping[str, Any] | None = None
) -> Any:
    """Make an object with a class or a factory.

    Raises:
        ConfigError: It is a coroutine, its arguments do not fit, or it fails.
    """
    if inspect.iscoroutinefunction(found):
        raise ConfigError(f"{source} is async; name a plain function that returns the object")
    try:
        with suppress(ValueError):  # it does not say what it takes
            inspect.signature(found).bind(*args, **(named or {}))
    except TypeError as error:
        raise ConfigError(f"{source} does not take these arguments: {error}") from None
    try:
        return found(*args, **(named or {}))
    except WickError as error:
        raise ConfigError(f"{source}: {error}") from error
    except (Exception, SystemExit) as error:  # whatever the code raises
        raise ConfigError(f"{source}() failed ({type(error).__name__}: {error})") from error
