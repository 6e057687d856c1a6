"""Addresses that try to lead an HTTP tool to what is not the public internet (D1 to D7)."""

from __future__ import annotations

import ipaddress

import pytest

from tests.attacks import naive_web
from tests.attacks.web import answers
from tests.support.loopback import Loopback, http, loopback
from wick_graph.errors import RefusedError, ToolError
from wick_graph.web import Client, refusal
from wick_graph.web.addresses import is_metadata

SHORT = ["127.1", "127.0.1", "0x7f000001", "0x7f.1", "2130706433"]
LOOPBACKS = [
    *(pytest.param(host, id=f"D1-{host}") for host in (*SHORT, "0", "0.0.0.0", "127.0.0.2")),
    *(
        pytest.param(host, id=f"D2-{host}")
        for host in ("[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]")
    ),
    *(pytest.param(host, id=f"D3-{host}") for host in ("LOCALHOST", "localhost.")),
]


@pytest.mark.parametrize("host", LOOPBACKS)
async def test_no_spelling_of_loopback_is_reached(host: str, server: Loopback) -> None:
    known = r"is refused: its address \S+ is (loopback|unspec)"
    unknown = "|cannot be found" if host.endswith(".") else ""  # not every resolver knows it
    with pytest.raises(ToolError, match=known + unknown):
        await Client(ports=[server.port]).send("GET", server.url(host))
    assert server.asked == []


@pytest.mark.parametrize("host", SHORT)
def test_reading_the_text_of_an_address_is_not_enough(host: str, server: Loopback) -> None:
    """D1 succeeds against a client that decides by the text."""
    assert "reached" in naive_web.reads_the_text(server.url(host))
    assert len(server.asked) == 1


async def test_an_address_in_other_letters_is_none(server: Loopback) -> None:
    """D3."""
    for host in ("127。0。0。1", "１２７.0.0.1", "ⓛocalhost"):
        with pytest.raises(ToolError, match="is not a usable address"):
            await Client(ports=[server.port]).send("GET", server.url(host))
    assert server.asked == []


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("64:ff9b::7f00:1", id="D4-nat64"),
        pytest.param("64:ff9b:1::7f00:1", id="D4-local-nat64"),
        pytest.param("2002:7f00:1::", id="D4-6to4"),
        pytest.param("2001:0:7f00:1::", id="D4-teredo"),
        pytest.param("2001:470:1::5efe:10.0.0.1", id="D4-isatap"),
        pytest.param("2001:470:1::200:5efe:127.0.0.1", id="D4-isatap-global"),
        pytest.param("::127.0.0.1", id="D4-compatible"),
        *(
            pytest.param(address, id=f"D5-{address}")
            for address in (
                *("100.64.0.1", "169.254.169.254", "fd00:ec2::254", "198.18.0.1", "224.0.0.1"),
                *("240.0.0.1", "255.255.255.255", "192.88.99.1", "10.0.0.1", "172.31.255.255"),
                *("192.168.1.1", "192.0.2.1", "0.1.2.3", "fe80::1", "fec0::1", "ff02::1"),
                *("2001:db8::1", "3fff::1", "5f00::1", "100::1", "192.0.0.170", "203.0.113.9"),
            )
        ),
    ],
)
async def test_what_is_not_the_public_internet_is_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(RefusedError, match="is refused: its address"):
        await Client().send("GET", f"http://{host}/")


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "8.8.8.8", "172.32.0.1", "100.63.255.255", "2606:4700::1111"),
        *("64:ff9b::8.8.8.8", "2002:808:808::", "::ffff:1.1.1.1"),
    ],
)
def test_the_public_internet_is_not_refused(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize("private", ["127.0.0.1", "10.0.0.1", "::1"])
async def test_a_name_with_one_private_address_is_refused(
    private: str, server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D6."""
    answers(monkeypatch, "mixed.test", ["1.1.1.1", private])
    with pytest.raises(RefusedError, match=f"its address {private} is"):
        await Client(ports=[server.port]).send("GET", server.url("mixed.test"))
    assert server.asked == []


@pytest.mark.allow_hosts(["127.0.0.1", "127.0.0.2"])
async def test_a_name_that_changes_its_address_is_followed_nowhere(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7: 127.0.0.2 stands for the public address, 127.0.0.1 for the private one."""
    with loopback(http(b"harmless"), "127.0.0.2", server.port) as harmless:
        asked = answers(monkeypatch, "rebind.test", ["127.0.0.2"], ["127.0.0.1"])
        client = Client(allow=[harmless.url("127.0.0.2")])
        answer = await client.send("GET", f"{server.url('rebind.test')}/x")
        assert (answer.body, len(asked), server.asked) == (b"harmless", 1, [])
        assert harmless.headers()["host"] == f"rebind.test:{server.port}"
        with pytest.raises(RefusedError, match=r"127\.0\.0\.1 is loopback"):
            await client.send("GET", server.url("rebind.test"))


@pytest.mark.allow_hosts(["127.0.0.1", "127.0.0.2"])
def test_checking_a_name_before_it_is_resolved_again_is_not_enough(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D7 succeeds against a client that checks first and connects by name."""
    answers(monkeypatch, "rebind.test", ["127.0.0.2"], ["127.0.0.1"])
    url = server.url("rebind.test")
    assert "reached" in naive_web.resolves_and_goes_on(url, "127.0.0.2")


def test_the_table_of_addresses_agrees_with_pythons_where_that_is_strict() -> None:
    """Whatever Python calls private is refused here too, but for public ones inside of IPv6."""
    for network in ("10.0.0.0/8", "192.0.0.0/29", "198.18.0.0/15", "fc00::/7", "2001::/23"):
        first = ipaddress.ip_network(network)[1]
        assert refusal(str(first)) is not None


METADATA = (
    *("169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"),
    *("192.0.0.192", "169.254.42.42", "fd00:42::42", "fd20:ce::254", "fe80::a9fe:a9fe"),
)
SPELT = {
    "decimal": "2852039166",
    "hexadecimal": "0xA9FEA9FE",
    "octal": "0251.0376.0251.0376",
    "mixed": "0xa9.0376.43518",
    "mapped": "[::ffff:169.254.169.254]",
    "mapped as hexadecimal": "[::ffff:a9fe:a9fe]",
    "compatible": "[::169.254.169.254]",
    "nat64": "[64:ff9b::a9fe:a9fe]",
    "local nat64": "[64:ff9b:1:a9fe:a9:fe00::]",
    "6to4": "[2002:a9fe:a9fe::1]",
    "isatap": "[2001:470:1::5efe:169.254.169.254]",
    "teredo": "[2001:0:1::5601:5601]",
    "a public address, mapped": "[::ffff:168.63.129.16]",
    "a public address, nat64": "[64:ff9b::a83f:8110]",
    "a public address, decimal": "2822734096",
    "a name": "metadata.google.internal",
    "a name with a dot": "metadata.google.internal.",
    "a name in capitals": "METADATA.Google.Internal",
}


@pytest.mark.parametrize(
    "host",
    [
        *(f"[{address}]" if ":" in address else address for address in METADATA),
        *(pytest.param(host, id=how) for how, host in SPELT.items()),
    ],
)
@pytest.mark.parametrize("port", [80, 9100])
async def test_what_gives_credentials_of_a_cloud_is_never_allowed(host: str, port: int) -> None:
    """Whatever a person allows, by its name, its address, or both."""
    origin = f"http://{host}:{port}"
    for address in METADATA:
        at = f"[{address}]" if ":" in address else address
        client = Client(allow=[origin, f"http://{at}:{port}"])
        for ask in (client.send("GET", f"{origin}/latest"), client.check(origin, 5.0)):
            with pytest.raises(RefusedError) as refused:
                await ask
            assert "for cloud metadata, which is never allowed" in str(refused.value)
            assert "if it is meant" not in str(refused.value)


@pytest.mark.parametrize("address", METADATA)
async def test_no_name_leads_to_it(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that has a good address too, and one that is allowed by name and by address."""
    answers(monkeypatch, "tools.example", ["93.184.216.34", address])
    at = f"[{address}]" if ":" in address else address
    client = Client(allow=["http://tools.example", f"http://{at}", "http://93.184.216.34"])
    with pytest.raises(RefusedError, match="never allowed"):
        await client.send("GET", "http://tools.example/")


@pytest.mark.parametrize("address", ["168.63.129.17", "100.100.100.201", "2600::a9fe:a9fe"])
def test_its_neighbours_are_not_taken_for_it(address: str) -> None:
    assert not is_metadata(address)


async def test_a_redirect_does_not_lead_to_it() -> None:
    place = "Location: http://169.254.169.254/latest/meta-data/"
    with (
        loopback(http(b"", "302 Found", place)) as server,
        pytest.raises(RefusedError, match="never allowed"),
    ):
        await Client(allow=[server.url(), "http://169.254.169.254"]).send("GET", server.url())
