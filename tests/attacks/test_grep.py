"""Patterns and files that try to hang the search, to break it, or to give it options."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.world import World, at_most, fastest
from tests.source import ROOT
from wick_graph.backends import LocalBackend, Matches, Stop, search
from wick_graph.backends import search as worker
from wick_graph.backends.protocol import MAX_GREP_LINE_CHARS, MAX_GREP_MATCHES
from wick_graph.backends.search import find_ripgrep
from wick_graph.errors import ToolError

Attack = Callable[[World, LocalBackend], None]
ATTACKS: dict[str, Attack] = {}
SLOW = (r"(a+)+$", r"(a|a)*b", r"(.*a){20}")


def attack(line: str) -> Callable[[Attack], Attack]:
    def add(fn: Attack) -> Attack:
        ATTACKS[line] = fn
        return fn

    return add


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, "auto")
    yield made
    made.close()


@pytest.fixture(params=["rg", "re2"])
def searching(request: pytest.FixtureRequest, world: World) -> Iterator[LocalBackend]:
    if request.param == "rg" and find_ripgrep(str(world.work)) is None:
        pytest.skip("ripgrep is not installed")
    with world.make(ripgrep=request.param == "rg") as made:
        yield made


def lines(found: Matches) -> list[tuple[str, int, str]]:
    return [(Path(m.file).name, m.line, m.text) for m in found.matches]


def _refusal(searching: LocalBackend, pattern: str) -> str:
    """Return the error text, which comes soon."""
    texts: list[str] = []

    def grep() -> None:
        with pytest.raises(ToolError) as caught:
            searching.grep(pattern)
        texts.append(str(caught.value))

    assert fastest(grep) < 2
    return texts[-1]


@attack("B1")
def backtracking(w: World, searching: LocalBackend) -> None:
    (w.work / "as").write_text("a" * 100_000 + "!")
    for pattern in SLOW:
        with at_most(10):
            searching.grep(pattern, "as")


@attack("B2")
def huge_repetition(w: World, searching: LocalBackend) -> None:
    for pattern in (r"(a{1000}){1000}{1000}", r"((a{100}){100}){100}"):
        assert "pattern is too large" in _refusal(searching, pattern)


@attack("B3")
def look_around(w: World, searching: LocalBackend) -> None:
    for pattern in (r"(?<=x)y", r"(a)\1", r"(?!x)", r"(?P<n>a)(?P=n)"):
        with pytest.raises(ToolError, match="look-around and back-references are not supported"):
            searching.grep(pattern)


@attack("B4")
def options(w: World, searching: LocalBackend) -> None:
    names = ["-e", "--pre=sh", "--files", "-f", "--help"]
    for name in names:
        (w.work / name).write_text(f"here is {name} as text\n")
        assert lines(searching.grep(name, name)) == [(name, 1, f"here is {name} as text")]
    (w.work / "-f").write_text("-f/etc/passwd\n")
    assert lines(searching.grep("-f/etc/passwd")) == [("-f", 1, "-f/etc/passwd")]
    with pytest.raises(ToolError, match="as a directory that is not one"):
        searching.grep("root", "-f/etc/passwd")


@attack("B5")
def configuration(w: World, searching: LocalBackend) -> None:
    config = w.work / ".ripgreprc"
    config.write_text("--invert-match\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RIPGREP_CONFIG_PATH", str(config))
        assert lines(searching.grep("deep")) == [("f", 1, "deep")]


@attack("B6")
def broken_patterns(w: World, searching: LocalBackend) -> None:
    for pattern in ("[" * 5_000, "a\ud800", "a\0b", "a" * 1_000_000, "(" * 5_000, "\\"):
        text = _refusal(searching, pattern)
        assert len(text) < 400
        assert text.isprintable()


@attack("B7")
def files_that_are_passed_over(w: World, searching: LocalBackend) -> None:
    (w.work / "dir").symlink_to(w.outside)
    os.mkfifo(w.work / "pipe")
    (w.work / "binary").write_bytes(b"deep\0deep")
    with (w.work / "huge").open("wb") as file:
        file.truncate(20 * 2**30)
    with at_most(10):
        found = searching.grep("deep|secret")
    assert lines(found) == [("f", 1, "deep")]
    for said in ("1 symbolic links", "1 special files", "1 binary", "1 files of more than 64 MiB"):
        assert said in found.notes[0]
    for path, words in (("dir", "symbolic link"), ("pipe", "not a regular file")):
        with pytest.raises(ToolError, match=words):
            searching.grep("x", path)
    assert "more than 64 MiB" in searching.grep("x", "huge").notes[0]


@attack("B8")
def many_and_long_matches(w: World, searching: LocalBackend) -> None:
    (w.work / "many").write_text("match\n" * 1_000_000)
    (w.work / "long").write_text("y" * 5_000_000 + "match" + "y" * 5_000_000 + "\nmatch\n")
    found = searching.grep("match", "many")
    assert len(found.matches) == MAX_GREP_MATCHES <= 1_000
    assert found.truncated
    long = searching.grep("match", "long").matches
    assert [m.line for m in long] == [1, 2]
    assert long[0].text == "y" * MAX_GREP_LINE_CHARS + "…"
    answer = json.loads(w.one("grep", pattern="match"))
    assert len(answer["matches"]) == MAX_GREP_MATCHES
    assert answer["truncated"] is True


PATTERNS = [
    *(r"word", r"Word", r"(?i)WORD", r"^word", r"word$", r"^$", r"^\s*$", r"\bword\b", r"\Bord"),
    *(r"\d+", r"\D", r"\w+", r"\W", r"\s", r"\S", r"[\d.]+", r"[\w-]+@", r"[^\w\s]", r"[^\S]x"),
    *(r"a.c", r"a[^b]c", r"[]x]", r"[^]x]", r"[a\]]", r"[&&]", r"[a&&b]", r"[~~]", r"[+\-]"),
    *(r"caf.", r"café", r"caf[éè]", r"(?i)CAFÉ", r"^.{4}$", r"ß", r"\pL+", r"\p{Greek}", r"\PL"),
    *(r"a{2}", r"a{2,}", r"a{,2}", r"{", r"}", r"a{b", r"\{x\}", r"x{1}{", r"]", r"\]"),
    *(r"(word|other)", r"(?:ab)+", r"(?P<n>ab)", r"(?<n>ab)", r"(?s)a.c", r"(?U)a+", r"(?m)^ab"),
    *(r"\.", r"\*", r"\/", r"\"", r"\'", r"\,", r"\<", r"\#", r"\ ", r"\@", r"\-", r"\%", r"\!"),
    *(r"\x41", r"\x{e9}", r"\x{1F600}", r"\t", r"\r", r"\f", r"\v", r"\a", r"\101", r"\Qa.c\E"),
    *(r"[[:alpha:]]+", r"[[:^digit:]]", r"[[:word:]]", r"[[:space:]]x", r"[[:punct:]]{2}"),
    *(
        r"\Aword",
        r"word\z",
        r"^\bword",
        r"$^",
        r"$(^)",
        r"$x*^",
        r"(?:$|x)(?:^)",
        r"",
        r"x*",
        r"()",
        r"|word",
        r"word|",
        r"\n",
        r"a\nb",
    ),
    *(r"--", r"-->", r"[a--]", r"[--/]", r"[a-c]", r"[c-]", r"[-c]", r"[^-]", r"[\x61-\x63]"),
    *(
        r"(?i)k",
        r"(?i)ſ",
        r"(?i)[k]",
        r"(?-i)k",
        r"(?i:w)ord",
        r"\\",
        r"\\d",
        r"[\\]",
        r"\$",
        r"\^",
    ),
]
PATTERNS += [
    f"{a}{b}" for a, b in itertools.product(("a", r"\w", r"[^x]", r"\b"), ("+", "*?", "."))
]
PATTERNS += [f"{a}{b}$" for a, b in itertools.product(("o", r"\d", "é", "."), ("", "+", "{2}"))]
PATTERNS += [
    f"{a}{b}{c}" for a, b, c in itertools.product("ab", ("", "|", ".?"), ("c", r"\d", "[ab]"))
]
PATTERNS += [f"(?i){word}" for word in ("word", "ß", "α", "σ", "[a-z]+é", r"\w+f", "x$")]
PATTERNS += [f"^{a}.*{b}" for a, b in itertools.product("wa1 \t", "dcé.x")]
PATTERNS += [
    f"[{a}{b}]" for a, b in itertools.product(("a", "\\w", "^0", " "), ("z", "\\d", "é", "-"))
]

TEXT = """\
word Word WORD swordfish other
  \t

word
ab abab a.c a\tc abc axc a\u00a0c
café cafe caf\u00e9\u0301 CAFÉ straße ΑΒΓ
12 3.14 1\u0663 _x user-name@host k K \u212a ſ s
a{b {x} } x{1}{ ] [] \\d \\ "q" 'q' #! a & b ~ ~ - -- --> + $ ^ % @ , < \U0001f600
aa aaa a
\x0b\x0cx \x07 tail\r
A B C ab
last line without end: word"""


@attack("B9")
def without_ripgrep(w: World, searching: LocalBackend) -> None:
    assert len(set(PATTERNS)) >= 200
    (w.work / "text").write_text(TEXT, newline="")
    (w.work / "a" / "latin").write_bytes(b"caf\xe9 word\r\n\xff\xfe a\xe9c\nend\n")
    (w.work / "empty").touch()
    (w.work / "ends").write_text("word\n\n")
    by_re2 = 0
    real = search._by_re2

    def counted(*args: Any) -> Any:
        nonlocal by_re2
        by_re2 += 1
        return real(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(w.outside))
        with w.make() as plain:
            answers = [_answer(plain, pattern) for pattern in PATTERNS]
        patch.setattr(search, "_by_re2", counted)
        differ = [p for p, a in zip(PATTERNS, answers, strict=True) if _answer(searching, p) != a]
        assert differ == []
    files = 7
    if searching._ripgrep is not None:
        assert by_re2 / files < len(PATTERNS) / 10, "ripgrep takes nearly all of them"


def _answer(backend: LocalBackend, pattern: str) -> object:
    try:
        return backend.grep(pattern)
    except ToolError as error:
        return str(error)


@pytest.mark.parametrize("line", [pytest.param(line, id=line) for line in ATTACKS])
def test_attack(world: World, searching: LocalBackend, line: str) -> None:
    ATTACKS[line](world, searching)
    world.nothing_leaked()


def test_every_line_is_there() -> None:
    assert list(ATTACKS) == [f"B{i}" for i in range(1, 10)]


def test_patterns_of_the_corpus_do_match_and_do_not(world: World) -> None:
    """A corpus that finds nothing would make any two engines agree."""
    (world.work / "text").write_text(TEXT, newline="")
    answers = [_answer(world.backend, pattern) for pattern in PATTERNS]
    found = [len(answer.matches) for answer in answers if isinstance(answer, Matches)]
    assert sum(1 for n in found if n) > 120
    assert sum(1 for n in found if not n) > 5


@pytest.mark.slow
def test_b1_succeeds_against_pythons_engine() -> None:
    code = f"from tests.attacks.naive import grep; grep({SLOW[0]!r}, 'a' * 100_000 + '!')"
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=3, check=False)


def test_a_search_ends_when_nobody_waits(
    world: World, searching: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(2_000):
        (world.work / f"{i}").write_text("x\n" * 1_000)
    stop = Stop()
    stop.set()
    opened: list[str] = []
    real = search._open

    def note(root: Any, path: str, walk: Any) -> int | None:
        opened.append(path)
        return real(root, path, walk)

    monkeypatch.setattr(search, "_open", note)
    found = searching.grep("nothing", stop=stop)
    assert found.truncated
    assert len(opened) <= 1, "it looked on"


STALLING = (
    *(r"((a*)*){1000}" * 30, r"(a{1,100}){10}" * 30 + "b", r".{0,999}" * 50 + "b"),
    *(r"(?i)" + r"\pL" * 300, r"(?:\pL|" * 900 + "x" + ")" * 900, r"[\pL\pN\pS]" * 600),
    *("((a*)*){1000}((a*)*){900}b", "(a{1,100}){10}(a{1,90}){10}b", ".{0,999}.{0,999}b"),
)
"""Short patterns that took many seconds to compile, or to search a megabyte for."""


@pytest.mark.sisters(3)
@pytest.mark.parametrize("pattern", STALLING, ids=range(len(STALLING)))
def test_no_pattern_holds_up_another_thread(
    world: World, searching: LocalBackend, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "GREP_SECONDS", 1.0)
    (world.work / "as").write_text(("a" * 200 + "\n") * 5_000)
    before, start = time.thread_time(), time.monotonic()
    found = _answer(searching, pattern)
    assert time.thread_time() - before < 0.5, "the search is another process's work"
    assert time.monotonic() - start < 15, "the usual limit is 20 s"
    assert isinstance(found, Matches | str)


@pytest.mark.parametrize("how", ["deadline", "stop"])
def test_a_worker_that_takes_too_long_is_killed(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    started: list[Any] = []
    real = worker._started

    def start(number: int) -> Any:
        started.append(real(number))
        return started[-1]

    monkeypatch.setattr(worker, "_started", start)
    monkeypatch.setattr(worker, "_WAITING", worker._Waiting())
    (world.work / "as").write_text(("a" * 200 + "\n") * 20_000)
    stop = Stop()
    with closing(worker._WAITING), world.make(ripgrep=False) as backend:
        assert lines(backend.grep("deep"))  # a search that waits for its worker kills none
        monkeypatch.setattr(search, "GREP_SECONDS", 1.0 if how == "deadline" else 20.0)
        if how == "stop":
            threading.Timer(0.5, stop.set).start()
        try:
            found = backend.grep(r"(?i)" + r"\pL" * 300, "as", stop)
            said = found.notes[0]
            assert found.truncated
        except ToolError as error:  # a busy machine is not done with the pattern by then
            said = str(error)
        assert "stopped" in said or "takes too long to compile" in said
        assert started[0].returncode == -signal.SIGKILL
        monkeypatch.setattr(search, "GREP_SECONDS", 20.0)
        assert lines(backend.grep("deep")) == [("f", 1, "deep")], "the next search has a new one"


def test_a_waiting_worker_serves_the_next_search_and_no_fork(world: World) -> None:
    with world.make(ripgrep=False) as backend:
        backend.grep("deep")
        (first,) = {one.popen.pid for one in worker._WAITING._found} or {0}
        backend.glob("f")
        assert [one.popen.pid for one in worker._WAITING._found] == [first]
        child = os.fork()
        if child == 0:
            fine = lines(backend.grep("deep")) == [("f", 1, "deep")]
            os._exit(0 if fine and worker._WAITING._found[-1].popen.pid != first else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert lines(backend.grep("deep")) == [("f", 1, "deep")]


@pytest.mark.parametrize(
    "pattern", ["*" * 5_000 + "x", "{a,b}" * 1_500, "[a-z]*" * 1_500 + "1", "**/" * 2_000 + "x"]
)
def test_no_glob_holds_up_another_thread(world: World, pattern: str) -> None:
    for number in range(2_000):
        (world.work / f"{'a' * 200}{number}").touch()
    before = time.thread_time()
    with suppress(ToolError):
        world.backend.glob(pattern)
    # the walk alone takes hundredths; one search that nothing can interrupt, many seconds
    assert time.thread_time() - before < 2


def test_ripgrep_is_never_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "bin" / "rg"
    planted.parent.mkdir()
    planted.write_text("#!/bin/sh\ntouch planted-ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted.parent}{os.pathsep}.{os.pathsep}bin")
    assert find_ripgrep(str(tmp_path)) is None
    assert find_ripgrep(str(tmp_path / "elsewhere")) == str(planted)
