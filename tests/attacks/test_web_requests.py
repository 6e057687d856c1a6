"""Redirects, URLs, ports and surroundings that try to send a request elsewhere (D8 to D12)."""

from __future__ import annotations

import datetime
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.attacks.web import SCHEMA, SECRET, answers, called, tool
from tests.support.loopback import Loopback, http, loopback
from wick_graph.errors import ConfigError, RefusedError, ToolError
from wick_graph.tools import HTTPTool
from wick_graph.web import Client


def moved(location: str, status: str = "302 Found") -> bytes:
    return http(b"", status, f"Location: {location}")


@pytest.mark.parametrize(
    ("location", "says"),
    [
        ("{private}/x", "is refused: its address 127.0.0.1 is loopback"),
        ("//127.0.0.1:{port}/x", "is refused: its address 127.0.0.1 is loopback"),
        ("file:///etc/passwd", "is not a usable address"),
        ("http://user:pw@127.0.0.1/", "is not a usable address"),
        ("", "redirects more than 3 times"),
        ("/again", "redirects more than 3 times"),
    ],
)
async def test_each_redirect_is_checked(location: str, says: str, server: Loopback) -> None:
    """D8."""
    with loopback() as first:
        first.answer = moved(location.format(private=server.url(), port=server.port))
        with pytest.raises(ToolError, match=says):
            await Client(allow=[first.url()]).send("GET", f"{first.url()}/start")
    assert server.asked == []
    assert len(first.asked) == (4 if "more than" in says else 1)


@pytest.mark.parametrize(
    ("status", "line", "body"),
    [
        ("307 Temporary Redirect", "POST /to HTTP/1.1", b"body"),
        ("308 Permanent Redirect", "POST /to HTTP/1.1", b"body"),
        ("303 See Other", "GET /to HTTP/1.1", b""),
        ("302 Found", "GET /to HTTP/1.1", b""),
    ],
)
async def test_another_origin_gets_no_credentials(
    status: str, line: str, body: bytes, server: Loopback
) -> None:
    """D8."""
    headers = {"Authorization": SECRET, "X-Key": "k", "Cookie": "a=b", "Content-Type": "text/x"}
    with loopback(moved(f"{server.url()}/to", status)) as first:
        client = Client(allow=[first.url(), server.url()])
        await client.send("POST", first.url(), headers=headers, content=b"body")
    assert first.headers()["authorization"] == SECRET
    assert (server.line(), server.body()) == (line, body)
    assert server.headers().keys() & {"authorization", "x-key", "cookie"} == set()
    assert server.headers()["content-type"] == "text/x"


async def test_the_same_origin_keeps_them() -> None:
    """D8."""

    def answer(conn: socket.socket, asked: bytes) -> None:
        conn.sendall(http(b"there") if b"/to" in asked else moved("/to"))

    with loopback(answer) as only:
        headers = {"Authorization": SECRET}
        answered = await Client(allow=[only.url()]).send("GET", only.url(), headers=headers)
    assert (answered.body, answered.url) == (b"there", f"{only.url()}/to")
    assert only.headers(1)["authorization"] == SECRET


UNREADABLE = [
    *(
        pytest.param(url, id=f"D9-{at}")
        for at, url in enumerate(
            [
                *("http://user:pw@127.0.0.1/", "http://127.0.0.1#@example.com/"),
                *("http://example.com@127.0.0.1/", "http://127.0.0.1\\@example.com/"),
                *("http://127.0.0.1\t/", "http://127.0.0.1\n.example.com/", "http://a b/"),
                *("http://127.0.0.1\\/", " http://example.com", "http://%31%32%37.0.0.1/"),
                *("http://[::1", "http://[::1]x/", "http://[fe80::1%25eth0]/", "http://"),
            ]
        )
    ),
    *(
        pytest.param(url, id=f"D10-{url}")
        for url in (
            *("file:///etc/passwd", "gopher://x/", "ftp://x/", "unix:/run/x", "data:,x"),
            *("javascript:alert(1)", "//127.0.0.1/", "http:127.0.0.1", "HTTPS:/x", "127.0.0.1"),
        )
    ),
    pytest.param("http://example.com:0/", id="D11-0"),
    pytest.param("http://example.com:65536/", id="D11-65536"),
]


@pytest.mark.parametrize("url", UNREADABLE)
async def test_an_address_that_readers_disagree_about_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^tool lookup: "):
        HTTPTool("lookup", "Look up", SCHEMA, url)
    with pytest.raises(ToolError):
        await Client().send("GET", url)


@pytest.mark.parametrize("port", [22, 25, 6379, 5432])
async def test_only_the_ports_of_the_web_are_reached(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11."""
    answers(monkeypatch, "public.test", ["1.1.1.1"])
    with pytest.raises(RefusedError, match=f"port {port} is none of 80, 443; if it is meant, add"):
        await Client().send("GET", f"http://public.test:{port}/")


@pytest.mark.parametrize("allowed", ["http://127.0.0.1:{}", "http://localhost:{}"])
async def test_what_is_allowed_is_reached(allowed: str, server: Loopback) -> None:
    url = allowed.format(server.port)
    assert "reached" in await called(tool(url))
    with pytest.raises(RefusedError):
        await Client(allow=[url]).send("GET", "http://127.0.0.1:1/")


async def test_an_allowed_name_allows_no_link_local_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, "metadata.test", ["169.254.169.254"])
    with pytest.raises(RefusedError, match="for cloud metadata, which is never allowed"):
        await Client(allow=["http://metadata.test"]).send("GET", "http://metadata.test/")


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """Make a server's certificate for a name, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / f"{name}.pem"
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
    path.write_bytes(secret + made.public_bytes(pem))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(path)
    return served, path


async def test_certificates_are_checked_against_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7, D12: the connection goes to an address, and the certificate is for the name."""
    served, path = certificate(tmp_path, "tools.test")
    answers(monkeypatch, "tools.test", ["127.0.0.1"])
    answers(monkeypatch, "other.test", ["127.0.0.1"])
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    with loopback(tls=served) as server:
        allow = [server.url("tools.test", "https"), server.url("other.test", "https")]
        trusting = Client(allow=allow, certificates=ssl.create_default_context(cafile=path))
        assert (await trusting.send("GET", allow[0])).status == 200
        with pytest.raises(ToolError, match="cannot be reached"):
            await trusting.send("GET", allow[1])
        with pytest.raises(ToolError, match="cannot be reached"):
            await Client(allow=allow).send("GET", allow[0])


async def test_the_environment_is_not_asked(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D12."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password pw\n", encoding="utf-8")
    with loopback() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("NETRC", str(netrc))
        await called(tool(server.url()))
    assert proxy.asked == []
    assert server.headers().keys() & {"authorization", "proxy-authorization"} == set()
