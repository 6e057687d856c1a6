"""Voice messages become text: the real HTTP client against an endpoint on loopback."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from wick_graph.config.gateway import TranscriptionConfig
from wick_graph.errors import RefusedError, ToolError
from wick_graph.gateway.channels.files import MAX_CHARS, client_of, is_voice, transcribe

KEY = "a-key-of-the-endpoint"
OGG = b"OggS\0\r\n--\r\n\xff"


class Endpoint:
    """What it got, and what it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.got: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answers: list[tuple[int, bytes, dict[str, str]]] = []

    def says(self, body: Any, status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers.append((status, raw, headers))


@pytest.fixture(scope="module")
def served() -> Iterator[Endpoint]:
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kind = self.headers["content-type"].encode()
            whole = message_from_bytes(b"Content-Type: " + kind + b"\r\n\r\n" + body)
            fields: dict[str, Any] = {}
            for part in whole.walk():
                if not part.is_multipart():
                    name = str(part.get_param("name", header="content-disposition"))
                    fields[name] = (part.get_filename(), part.get_payload(decode=True))
            headers = {key.lower(): value for key, value in self.headers.items()}
            endpoint.got.append((self.path, headers, fields))
            status, raw, more = endpoint.answers.pop(0)
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield endpoint
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def endpoint(served: Endpoint) -> Endpoint:
    served.got.clear()
    served.answers.clear()
    return served


def config(url: str, **more: Any) -> TranscriptionConfig:
    return TranscriptionConfig.model_validate({"url": url, "api_key": KEY, **more}, strict=False)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / 'a"b\r\nvoice.ogg'
    path.write_bytes(OGG)
    return path


async def heard(path: Path, given: TranscriptionConfig) -> str:
    return await transcribe(path, given, client_of(given))


async def test_a_recording_becomes_text(endpoint: Endpoint, recording: Path) -> None:
    endpoint.says({"text": " Buy milk. "})
    assert await heard(recording, config(endpoint.url, model="large")) == "Buy milk."
    ((path, headers, fields),) = endpoint.got
    assert path == "/v1/audio/transcriptions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert fields == {
        "model": (None, b"large"), "response_format": (None, b"json"), "file": ("voice.ogg", OGG),
    }  # fmt: skip


async def test_without_a_key_none_is_sent(endpoint: Endpoint, recording: Path) -> None:
    endpoint.says({"text": "a"})
    await heard(recording, config(endpoint.url + "/", api_key=None))
    assert "authorization" not in endpoint.got[0][1]
    assert endpoint.got[0][0] == "/v1/audio/transcriptions"


async def test_a_long_text_is_cut_visibly(endpoint: Endpoint, recording: Path) -> None:
    endpoint.says({"text": "a" * (MAX_CHARS + 7)})
    text = await heard(recording, config(endpoint.url))
    assert text == "a" * MAX_CHARS + "\n[truncated: 7 more characters]"


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, {"error": KEY}, "answered with status 401"),
        (500, b"", "answered with status 500"),
        (200, b"no JSON", "gave no words"),
        (200, b"\xff\xfe", "gave no words"),
        (200, b"[" * 100_000, "gave no words"),
        (200, {"text": None}, "gave no words"),
        (200, {"words": "a"}, "gave no words"),
        (200, ["text"], "gave no words"),
        (200, "text", "gave no words"),
        (200, {"text": " \n"}, "gave no words"),
        (200, b"a" * (2**20 + 1), "longer than"),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_an_answer_that_is_no_text_is_said(
    endpoint: Endpoint, recording: Path, status: int, body: Any, said: str
) -> None:
    endpoint.says(body, status)
    with pytest.raises(ToolError, match=said) as caught:
        await heard(recording, config(endpoint.url))
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_redirect_to_a_private_address_is_refused(
    endpoint: Endpoint, recording: Path
) -> None:
    endpoint.says(b"", 307, Location="http://169.254.169.254/latest")
    with pytest.raises(ToolError, match="never allowed"):
        await heard(recording, config(endpoint.url))


async def test_an_endpoint_that_is_down_is_said(recording: Path) -> None:
    with pytest.raises(ToolError, match="cannot be reached"):
        await heard(recording, config("http://127.0.0.1:1"))


async def test_an_endpoint_that_does_not_answer_in_time_is_said(recording: Path) -> None:
    ended = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ToolError, match="within 0.05 s"):
        await heard(recording, config(f"http://127.0.0.1:{port}", timeout=0.05))
    await asyncio.wait_for(ended.wait(), 60)
    server.close()


async def test_a_recording_that_is_too_large_is_not_sent(
    endpoint: Endpoint, recording: Path
) -> None:
    with pytest.raises(RefusedError, match="more than 9 bytes"):
        await heard(recording, config(endpoint.url, most_bytes=9))
    assert not endpoint.got


@pytest.mark.parametrize("kind", ["missing", "empty", "folder", "link", "pipe", "nul"])
async def test_what_is_no_file_is_not_sent(endpoint: Endpoint, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.ogg"
    (tmp_path / "secret").write_bytes(b"secret")
    match kind:
        case "empty":
            path.touch()
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "secret")
        case "pipe":
            os.mkfifo(path)
        case "nul":
            path = tmp_path / "a\0.ogg"
    with pytest.raises(RefusedError, match="is missing or empty"):
        await heard(path, config(endpoint.url))
    assert not endpoint.got


@pytest.mark.parametrize(
    ("name", "kind", "voice"),
    [
        ("voice.ogg", "audio/ogg", True),
        ("voice.OGA", "", True),
        ("memo.m4a", "application/octet-stream", True),
        ("clip.webm", "audio/webm", True),
        ("clip.webm", "video/webm", False),
        ("clip.mp4", "", False),
        ("voice", "audio/ogg", True),
        ("a.pdf", "audio/ogg", False),
        ("a.png", "image/png", False),
        ("ogg", "", False),
    ],
)
def test_which_files_are_voice(name: str, kind: str, voice: bool) -> None:
    assert is_voice(Path("inbox") / name, kind) is voice


@pytest.mark.parametrize(
    ("name", "sent"), [("a.opus", "voice.ogg"), ("a.oga", "voice.ogg"), ("a.M4A", "voice.m4a")]
)
async def test_the_suffix_that_is_sent_is_one_that_endpoints_know(
    endpoint: Endpoint, tmp_path: Path, name: str, sent: str
) -> None:
    endpoint.says({"text": "a"})
    (tmp_path / name).write_bytes(OGG)
    await heard(tmp_path / name, config(endpoint.url))
    assert endpoint.got[0][2]["file"][0] == sent
