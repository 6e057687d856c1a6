"""Replace a text in a file's bytes, and touch nothing else."""

from __future__ import annotations

from wick_graph.errors import ToolError

NOT_FOUND = "old_text not found in file"


def replace_first(data: bytes, old: str, new: str, unique: bool) -> tuple[bytes, int]:
    """Replace the first occurrence; return the new content and how many more there are.

    A text of several lines is also found where the file ends its lines with CR LF; what is put
    there does so too.

    Raises:
        ToolError: It is not there, or more than once although it must be unique.
    """
    wanted, put = _encoded(old), _encoded(new)
    at = data.find(wanted)
    if at < 0 and b"\n" in wanted and b"\r\n" in data:
        wanted, put = _with_crlf(wanted), _with_crlf(put)
        at = data.find(wanted)
    if at < 0:
        raise ToolError(NOT_FOUND)
    if unique and data.find(wanted, at + 1) >= 0:
        raise ToolError("old_text is in the file more than once; give more of what stands around")
    rest = data[at + len(wanted) :]
    return data[:at] + put + rest, rest.count(wanted)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolError("the text has half of a surrogate pair; write valid text") from None


def _with_crlf(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
