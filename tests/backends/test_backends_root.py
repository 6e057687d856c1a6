"""Nothing leads out of a Root, by either mechanism, and what is inside can be reached."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from wick_graph.backends import Entry, Root
from wick_graph.errors import ConfigError, ToolError

SECRET = b"outside"
Mechanism = Literal["openat2", "walk"]
MakeRoot = Callable[..., Root]


@pytest.fixture(params=["openat2", "walk"])
def mechanism(request: pytest.FixtureRequest, tmp_path: Path) -> Mechanism:
    name: Mechanism = request.param
    if name == "openat2":
        try:
            Root(tmp_path, mechanism=name).close()
        except ConfigError:
            pytest.skip("this system has no openat2")
    return name


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A small tree, with a secret beside it."""
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_bytes(SECRET)
    work = tmp_path / "w"
    (work / "a" / "b").mkdir(parents=True)
    (work / "x").write_bytes(b"inside")
    (work / "a" / "f").write_bytes(b"deep")
    return work


@pytest.fixture
def make(work: Path, mechanism: Mechanism) -> Iterator[MakeRoot]:
    made: list[Root] = []

    def root(**options: Literal["deny", "inside"]) -> Root:
        made.append(Root(work, mechanism=mechanism, **options))
        return made[-1]

    yield root
    for each in made:
        each.close()


@pytest.fixture
def root(make: MakeRoot) -> Root:
    return make()


def test_the_mechanism_is_the_one_asked_for(root: Root, mechanism: Mechanism) -> None:
    assert root.mechanism == mechanism


@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param("x", b"inside", id="plain"),
        pytest.param("./x", b"inside", id="dot"),
        pytest.param("a//f", b"deep", id="double-slash"),
        pytest.param("a/../x", b"inside", id="A4"),
        pytest.param("a/b/../../a/f", b"deep", id="A4-twice"),
    ],
)
def test_paths_inside_are_read(root: Root, path: str, content: bytes) -> None:
    assert root.read_bytes(path, 100) == content


def test_an_absolute_path_inside_is_the_same_file(root: Root, work: Path) -> None:
    assert root.read_bytes(f"{work}/x", 100) == b"inside"
    assert root.read_bytes(f"/{work}//a/./f", 100) == b"deep"


@pytest.mark.parametrize("name", ["notes..md", "...", "~", "$HOME", "`id`", "%2e%2e%2f", "a b\n"])
def test_odd_names_mean_only_themselves(root: Root, work: Path, name: str) -> None:
    (work / name).write_bytes(b"odd")
    assert root.read_bytes(name, 100) == b"odd"


ATTACKS = [
    pytest.param("../secret", "leads outside", id="A1"),
    pytest.param("../../../../../../etc/passwd", "leads outside", id="A1-far"),
    pytest.param("/etc/passwd", "leads outside", id="A2"),
    pytest.param("a/../../secret", "leads outside", id="A3"),
    pytest.param("..", "leads outside", id="parent"),
    pytest.param("/", "leads outside", id="A18-slash"),
    pytest.param("~/.ssh/id_rsa", "does not exist", id="A6"),
    pytest.param("~root/x", "does not exist", id="A6-user"),
    pytest.param("/proc/self/environ", "leads outside", id="A16"),
    pytest.param("/dev/fd/0", "leads outside", id="A16-fd"),
    pytest.param("", "empty", id="A18-empty"),
    pytest.param(".", "is a directory", id="A18-dot"),
    pytest.param("a", "is a directory", id="A18-directory"),
    pytest.param("x/", "as a directory that is not one", id="A18-slash-behind"),
    pytest.param("x/y", "as a directory that is not one", id="A18-below-a-file"),
    pytest.param("x/../x", "as a directory that is not one", id="A18-out-of-a-file"),
    pytest.param("nope", "does not exist", id="missing"),
    pytest.param("nope/../x", "does not exist", id="missing-on-the-way"),
    pytest.param("x\0y", "NUL", id="A19-nul"),
    pytest.param("x\ud800", "no path can have", id="A19-surrogate"),
    pytest.param("n" * 256, "too long", id="A19-component"),
    pytest.param("a/" * 2_500 + "x", "too long", id="A19-path"),
]


@pytest.mark.parametrize(("path", "words"), ATTACKS)
def test_a_bad_path_is_refused_in_one_sentence(root: Root, path: str, words: str) -> None:
    with pytest.raises(ToolError, match=words) as caught:
        root.read_bytes(path, 100)
    text = str(caught.value)
    assert len(text) < 400
    assert text.isprintable()
    text.encode()


def test_an_absolute_path_that_climbs_out_again_is_refused(root: Root, work: Path) -> None:
    for path in (f"{work}/../secret", f"{work}-other/x", f"{work.parent}/secret"):
        with pytest.raises(ToolError, match="leads outside"):
            root.read_bytes(path, 100)


def link(work: Path, name: str, target: str) -> None:
    (work / name).symlink_to(target)


LINKS = [
    pytest.param("../secret", "link", id="A8"),
    pytest.param("/etc/passwd", "link", id="A8-absolute"),
    pytest.param("../outside", "link/f", id="A9"),
    pytest.param("/etc", "link/passwd", id="A9-absolute"),
    pytest.param("a/../../secret", "link", id="A8-through-inside"),
    pytest.param("/proc/self/cwd", "link", id="A16-magic"),
    pytest.param("/dev/zero", "link", id="A17"),
    pytest.param("link", "link", id="A11"),
    pytest.param("nowhere", "link", id="dangling"),
    pytest.param("../nowhere", "link", id="dangling-outside"),
]


@pytest.mark.parametrize("symlinks", ["deny", "inside"])
@pytest.mark.parametrize(("target", "path"), LINKS)
def test_links_that_lead_out_or_nowhere_are_refused(
    make: MakeRoot, work: Path, target: str, path: str, symlinks: str
) -> None:
    link(work, "link", target)
    root = make(symlinks=symlinks)
    with pytest.raises(ToolError, match=r"symbolic link|leads outside|does not exist"):
        root.read_bytes(path, 100)
    with pytest.raises(ToolError):
        root.list_dir(path)
    with pytest.raises(ToolError):
        root.stat(path)


@pytest.mark.parametrize(
    ("target", "path", "content"),
    [
        pytest.param("x", "link", b"inside", id="file"),
        pytest.param("a", "link/f", b"deep", id="directory"),
        pytest.param("a/b/../f", "link", b"deep", id="dotdot"),
        pytest.param("./a/", "link/f", b"deep", id="slash"),
    ],
)
def test_links_that_stay_inside_follow_the_policy(
    make: MakeRoot, work: Path, target: str, path: str, content: bytes
) -> None:
    link(work, "link", target)
    with pytest.raises(ToolError, match="symbolic link"):
        make().read_bytes(path, 100)
    assert make(symlinks="inside").read_bytes(path, 100) == content


def test_an_absolute_link_is_not_read_as_a_relative_one(make: MakeRoot, work: Path) -> None:
    link(work, "link", "/x")
    with pytest.raises(ToolError, match="leads outside"):
        make(symlinks="inside").read_bytes("link", 100)


def test_a_link_to_the_root_itself_stays_inside(make: MakeRoot, work: Path) -> None:
    link(work / "a", "up", "..")
    root = make(symlinks="inside")
    assert root.read_bytes("a/up/x", 100) == b"inside"
    assert {entry.name for entry in root.list_dir("a/up")} == {"a", "x"}


def test_a_chain_of_more_than_forty_links_is_refused(make: MakeRoot, work: Path) -> None:
    link(work, "l0", "x")
    for i in range(50):
        link(work, f"l{i + 1}", f"l{i}")
    root = make(symlinks="inside")
    assert root.read_bytes("l20", 100) == b"inside"
    with pytest.raises(ToolError, match="symbolic link"):
        root.read_bytes("l50", 100)


def test_pipes_and_sockets_are_refused_at_once(root: Root, work: Path) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(work / "s"))
        for name in ("pipe", "s"):
            with pytest.raises(ToolError, match="not a regular file"):
                root.read_bytes(name, 100)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to somebody else")
def test_a_hard_link_to_a_foreign_file_is_refused(root: Root, work: Path) -> None:
    own = work / "x"
    os.link(own, work / "second")
    assert root.read_bytes("second", 100) == b"inside"
    os.link(work.parent / "secret", work / "hard")
    os.chown(work / "hard", 65_534, 65_534)
    with pytest.raises(ToolError, match="hard link"):
        root.read_bytes("hard", 100)


def _exchange(first: Path, second: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    at_cwd, exchange = -100, 2
    if libc.renameat2(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange):
        raise OSError(ctypes.get_errno(), "renameat2")


@pytest.mark.sisters(6)
@pytest.mark.parametrize("symlinks", ["deny", "inside"])
@pytest.mark.parametrize("last", [False, True], ids=["A12", "A13"])
def test_a_swap_during_a_read_leaks_nothing(
    make: MakeRoot, work: Path, symlinks: str, last: bool
) -> None:
    """A directory, or the file itself, changes places with a link to the outside all the time."""
    swapped, planted = (work / "a" / "f", work / "p") if last else (work / "a", work / "p")
    planted.symlink_to(work.parent / ("secret" if last else "outside"))
    root = make(symlinks=symlinks)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            _exchange(swapped, planted)

    try:
        _exchange(swapped, planted)
        _exchange(swapped, planted)
    except (OSError, AttributeError):
        pytest.skip("this file system cannot exchange two names")
    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes] = set()
    try:
        for _ in range(3_000):
            try:
                seen.add(root.read_bytes("a/f", 100))
            except ToolError:
                continue
    finally:
        stop.set()
        thread.join()
    assert seen <= {b"deep"}  # on a busy machine each read may meet the link


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_descriptors_are_given_back(make: MakeRoot, work: Path) -> None:
    link(work, "link", "a")
    root = make(symlinks="inside")

    def use() -> None:
        root.read_bytes("link/f", 10)
        root.list_dir("a")
        root.stat("link/../x")
        for bad in ("../secret", "nope", "x/y", "a"):
            with pytest.raises(ToolError):
                root.read_bytes(bad, 10)

    use()
    before = open_descriptors()
    for _ in range(5):
        use()
    assert open_descriptors() == before


def test_a_read_stops_at_the_limit(root: Root, work: Path) -> None:
    with (work / "huge").open("wb") as file:
        file.truncate(20 * 2**30)
    assert root.read_bytes("huge", 1_000) == bytes(1_000)
    assert root.stat("huge").st_size == 20 * 2**30


def test_entries_are_sorted_and_typed(root: Root, work: Path) -> None:
    link(work, "link", "x")
    os.mkfifo(work / "pipe")
    assert root.list_dir() == [
        Entry("a", "dir", 0),
        Entry("link", "symlink", 0),
        Entry("pipe", "other", 0),
        Entry("x", "file", 6),
    ]
    assert root.list_dir("a/b") == []


def test_a_scan_has_the_first_names_and_the_full_count(root: Root, work: Path) -> None:
    for i in range(30):
        (work / "a" / "b" / f"{i:02}").touch()
    entries, total = root.scan_dir("a/b", 3)
    assert [entry.name for entry in entries] == ["00", "01", "02"]
    assert total == 30


def test_a_name_that_is_no_utf8_can_be_listed_and_read(root: Root, work: Path) -> None:
    path = os.fsencode(work) + b"/caf\xe9"
    try:
        with open(path, "wb") as file:  # noqa: PTH123  (the name is bytes)
            file.write(b"latin")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    names = [entry.name for entry in root.list_dir()]
    assert "caf\\xe9" in names
    assert root.read_bytes("caf\\xe9", 100) == b"latin"
    (work / "caf\\xe9").write_bytes(b"literal")
    assert root.read_bytes("caf\\xe9", 100) == b"literal"


def test_open_dir_gives_a_descriptor_of_the_directory(root: Root, work: Path) -> None:
    fd = root.open_dir("a")
    try:
        assert os.path.samestat(os.fstat(fd), (work / "a").stat())
    finally:
        os.close(fd)


def test_a_listing_of_a_file_is_refused(root: Root) -> None:
    with pytest.raises(ToolError, match="as a directory that is not one"):
        root.list_dir("x")


def test_the_root_may_be_named_through_a_link(work: Path, mechanism: Mechanism) -> None:
    named = work.parent / "named"
    named.symlink_to(work)
    with Root(named, mechanism=mechanism) as root:
        assert root.read_bytes("x", 9) == b"inside"
        assert root.read_bytes(f"{named}/x", 9) == b"inside"
        assert root.read_bytes(f"{work}/x", 9) == b"inside"


def test_the_file_system_root_can_be_a_root(work: Path, mechanism: Mechanism) -> None:
    with Root("/", mechanism=mechanism) as root:
        assert root.read_bytes(f"{work.resolve()}/x", 9) == b"inside"
        with pytest.raises(ToolError, match="leads outside"):
            root.read_bytes("../x", 9)


def test_a_closed_root_refuses_and_closes_twice(root: Root) -> None:
    root.close()
    root.close()
    with pytest.raises(ToolError, match="was closed"):
        root.read_bytes("x", 9)


@pytest.mark.parametrize("makes", [False, True])
def test_a_root_that_another_thread_closes_meanwhile_opens_nothing_elsewhere(
    work: Path, mechanism: Mechanism, makes: bool
) -> None:
    """The number of its descriptor could be that of any other directory by then."""
    root, others = Root(work / "a", mechanism=mechanism), list[int]()
    opener = root._opener

    class Closed:
        name = mechanism

        def open(self, top: int, parts: Sequence[bytes], flags: int, follow: bool) -> int:
            if not others:
                root.close()
                outside = work.parent / "outside"
                others.extend(os.open(outside, os.O_RDONLY) for _ in range(64))
            return opener.open(top, parts, flags, follow)

    vars(root)["_opener"] = Closed()
    try:
        if makes:
            root.make_dir("new")
            assert (work / "a" / "new").is_dir()
        else:
            assert root.read_bytes("f", 9) == b"deep"
    finally:
        for fd in others:
            os.close(fd)
    with pytest.raises(ToolError, match="was closed"):
        root.read_bytes("f", 9)


@pytest.mark.parametrize("path", ["nope", "x", "a\0b"])
def test_a_root_that_is_no_directory_is_a_configuration_error(work: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        Root(work / path)


def test_auto_uses_what_the_system_has(work: Path) -> None:
    with Root(work) as root:
        assert root.mechanism in ("openat2", "walk")
        assert root.read_bytes("x", 9) == b"inside"
