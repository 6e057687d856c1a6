"""Long texts are cut into parts that a platform accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wick_graph.gateway.channels.split import parts, split, units
from wick_graph.gateway.messages import OutboundMessage

PLAIN = st.text(alphabet="ab \n\t.😀é\r", max_size=600)

LINES = ("```python\n", "```\n", "~~~\n", "````\n", "x = 1\n", "  z\n", "\n", "\n\n")

FENCED = st.lists(st.sampled_from([*LINES, "word " * 30, "y" * 300]), max_size=40).map("".join)


def without_space(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(PLAIN, st.integers(2, 200))
@example(" " * 600, 2)
@example("😀" * 50, 2)
@example("a" + "\n" * 500 + "b", 10)
def test_a_text_keeps_all_but_white_space_at_the_breaks(text: str, limit: int) -> None:
    cut = split(text, limit)
    assert all(part.strip() and units(part) <= limit for part in cut)
    assert without_space("".join(cut)) == without_space(text)
    at = 0
    for part in cut:  # each part is a piece of the text, in order; between two there is space only
        found = text.index(part, at)
        assert not text[at:found].strip()
        at = found + len(part)


@given(FENCED, st.integers(201, 700))
@example("```python\n" + "x = 1\n" * 200 + "```\nend", 201)
@example("```\n" + "y" * 900, 201)
@example("word " * 39 + "\n```python\nx = 1\n```\n" + "word " * 60, 201)
def test_blocks_of_code_are_closed_and_opened_again(text: str, limit: int) -> None:
    cut = split(text, limit)
    assert all(part.strip() and units(part) <= limit for part in cut)
    outside = "".join(line for part in cut for line, _ in prose(part))
    assert without_space(outside) == without_space("".join(line for line, _ in prose(text)))
    code = "".join(line for part in cut for line in inside(part))
    assert without_space(code) == without_space("".join(inside(text)))
    assert all(not is_open(part) for part in cut[:-1])


FENCE = re.compile(r" {0,3}(`{3,10}|~{3,10})([^`\n]{0,40})")


def walk(text: str) -> tuple[list[tuple[str, bool]], bool]:
    """The lines of a text that are no fences, each with whether it is code; whether one is open."""
    marker, found = "", []
    for line in text.split("\n"):
        mark = FENCE.fullmatch(line)
        if marker and set(line.strip()) == {marker[0]} and len(line.strip()) >= len(marker):
            marker = ""
        elif not marker and mark:
            marker = mark[1]
        else:
            found.append((line, bool(marker)))
    return found, bool(marker)


def prose(text: str) -> list[tuple[str, bool]]:
    return [entry for entry in walk(text)[0] if not entry[1]]


def inside(text: str) -> list[str]:
    return [line for line, code in walk(text)[0] if code]


def is_open(text: str) -> bool:
    return walk(text)[1]


def test_it_breaks_between_paragraphs_before_lines_and_words() -> None:
    assert split("aaaa aaaa\n\nbbbb bbbb", 14) == ["aaaa aaaa", "bbbb bbbb"]
    assert split("aaaa aaaa\nbbbb bbbb", 14) == ["aaaa aaaa", "bbbb bbbb"]
    assert split("aaaa bbbb cccc", 9) == ["aaaa bbbb", "cccc"]
    assert split("aaaaaaaaaa", 4) == ["aaaa", "aaaa", "aa"]
    assert split(" \n ", 4) == []


def test_the_language_of_a_block_is_repeated() -> None:
    text = "See:\n```python\n" + "\n".join(f"x{i} = {i}" for i in range(100)) + "\n```\nDone."
    cut = split(text, 400)
    assert len(cut) > 2
    assert all(part.startswith("```python\n") and part.count("```") == 2 for part in cut[1:-1])
    assert cut[-1].endswith("```\nDone.")


def test_a_block_moves_to_the_next_part_rather_than_being_cut() -> None:
    cut = split("word " * 50 + "\n```sh\nls\n```\n" + "word " * 40, 263)
    assert cut[0] == ("word " * 50).rstrip()
    assert "```sh\nls\n```" in cut[1]


def test_a_character_of_two_units_counts_as_two() -> None:
    assert [units(part) for part in split("😀" * 5000, 4096)] == [4096, 4096, 1808]


@pytest.mark.parametrize("limit", [1, 0, -5])
def test_a_limit_without_room_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="limit"):
        split("a", limit)


def test_a_long_text_is_cut_in_linear_time() -> None:
    assert len(split("wörd 😀 " * 40_000, 4096)) < 90


def test_a_message_becomes_one_call_each() -> None:
    whole = OutboundMessage(
        channel="c", chat_id="1", content="aaaa\n\nbbbb", media=("/x.png", "/y.pdf"),
        reply_to="7", buttons=(("Yes", "y"),),
    )  # fmt: skip
    cut = parts(whole, 5)
    assert [(one.content, one.media) for one in cut] == [
        ("aaaa", ()), ("bbbb", ()), ("", ("/x.png",)), ("", ("/y.pdf",)),
    ]  # fmt: skip
    assert [one.reply_to for one in cut] == ["7", "", "", ""]
    assert [bool(one.buttons) for one in cut] == [False, True, False, False]


def test_a_file_with_a_short_text_is_one_call() -> None:
    one = OutboundMessage(channel="c", chat_id="1", content="hi", media=("/x.png",))
    assert parts(one, 4096, caption=1024) == [one]
    assert parts(parts(one, 4096)[0], 4096) == [parts(one, 4096)[0]]
