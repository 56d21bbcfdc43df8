"""The client's address behind trusted and forged proxies (D24)."""

import tracemalloc
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.client_address import ClientAddresses, network_of
from lockgate.errors import ConfigurationError

PROXIED = ClientAddresses(["10.0.0.0/8", "2001:db8:ffff::/48", "192.0.2.1"])
SOCKET = ClientAddresses(["unix"])


def find(addresses: ClientAddresses, peer: str | None, *forwarded: str) -> str:
    return addresses.find(peer, [value.encode("latin-1") for value in forwarded])


def test_without_proxies_the_peer_is_the_client() -> None:
    nobody = ClientAddresses()
    assert not nobody.trusts_any
    assert find(nobody, "203.0.113.9") == "203.0.113.9"
    assert find(nobody, "203.0.113.9", "198.51.100.7") == "203.0.113.9"
    assert find(nobody, None, "198.51.100.7") == "unix"


TOLD = [
    *(["203.0.113.9"], ["  203.0.113.9\t"], ["198.51.100.7, 203.0.113.9"]),
    *(["198.51.100.7", "203.0.113.9"], ["203.0.113.9, 10.1.2.3"], ["203.0.113.9,,", " "]),
    *(["198.51.100.7,203.0.113.9,10.1.2.3 , 192.0.2.1"], ["203.0.113.9, , 10.0.0.5"]),
    *(["203.0.113.9, 2001:db8:ffff::1, 10.9.9.9"], ["203.0.113.9:4711"], ["::ffff:203.0.113.9"]),
    *(["[::ffff:203.0.113.9]:1"], ["203.0.113.9, ::ffff:10.0.0.9"]),
]
UNREADABLE = [
    *([], [""], ["203.0.113.9, unknown"], ["203.0.113.009"], ["203.0.113.999"], ["3405803785"]),
    *(["203.0.113.9/32"], ["['203.0.113.9']"], ["é\x00\xff"], ["["], [":"]),
]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        *((forwarded, "203.0.113.9") for forwarded in TOLD),
        *((forwarded, "10.0.0.1") for forwarded in UNREADABLE),
        (["10.0.0.7, 10.0.0.8"], "10.0.0.7"),
        (["203.0.113.9, _hidden, 10.0.0.5"], "10.0.0.5"),
        *(([f"{ip}"], "2001:db8::/64") for ip in ("[2001:db8::1]:4711", "[2001:db8::1]")),
        (["2001:db8::1"], "2001:db8::/64"),
    ],
)
def test_the_header_is_read_from_the_right_past_trusted_hops(
    forwarded: list[str], client: str
) -> None:
    assert PROXIED.trusts_any
    assert find(PROXIED, "10.0.0.1", *forwarded) == client


def test_a_header_from_an_untrusted_peer_is_ignored() -> None:
    assert find(PROXIED, "203.0.113.1", "198.51.100.7") == "203.0.113.1"
    assert find(PROXIED, "2001:db8:fffe::1", "198.51.100.7") == "2001:db8:fffe::/64"
    assert find(PROXIED, "192.0.2.2", "198.51.100.7") == "192.0.2.2"
    assert find(PROXIED, "11.0.0.0", "198.51.100.7") == "11.0.0.0"


def test_a_proxy_that_comes_over_ipv6_is_the_same_proxy() -> None:
    assert find(PROXIED, "::ffff:10.0.0.1", "203.0.113.9") == "203.0.113.9"
    assert find(PROXIED, "2001:db8:ffff:1::5", "203.0.113.9") == "203.0.113.9"


@given(st.lists(st.ip_addresses(v=4).map(str) | st.text(max_size=8), max_size=30))
def test_entries_written_by_the_client_are_ignored(invented: list[str]) -> None:
    """Whatever stands left of what the outermost proxy added."""
    spoofed = ", ".join([*invented, "203.0.113.9", "10.0.0.2"]).encode("utf-8")
    assert PROXIED.find("10.0.0.1", [spoofed]) == "203.0.113.9"
    assert PROXIED.find("10.0.0.1", [*(i.encode() for i in invented), b"203.0.113.9"]) == (
        "203.0.113.9"
    )


@given(st.ip_addresses(v=6))
def test_an_ipv6_client_counts_by_its_64(address: object) -> None:
    found = find(ClientAddresses(), str(address))
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        assert found == str(mapped)
    else:
        assert ip_network(found).prefixlen == 64
        assert ip_address(str(address)) in ip_network(found)


def test_zones_of_an_address_are_one_client() -> None:
    assert (
        find(ClientAddresses(), "fe80::1%eth0")
        == find(ClientAddresses(), "fe80::2%eth1")
        == "fe80::/64"
    )


def test_a_peer_on_a_unix_socket_is_trusted_only_if_configured() -> None:
    assert SOCKET.trusts_any
    assert find(SOCKET, None, "203.0.113.9") == "203.0.113.9"
    assert find(SOCKET, "", "203.0.113.9") == "203.0.113.9"
    assert find(SOCKET, None) == "unix"
    assert find(SOCKET, "localhost") == "unix"  # As waitress has it.
    assert find(SOCKET, "localhost", "203.0.113.9") == "203.0.113.9"
    assert find(SOCKET, "127.0.0.1", "203.0.113.9") == "127.0.0.1"
    assert find(PROXIED, "localhost", "203.0.113.9") == "unix"
    assert find(SOCKET, "203.0.113.1", "198.51.100.7") == "203.0.113.1"
    assert find(SOCKET, "testclient", "198.51.100.7") == "testclient"
    assert find(PROXIED, None, "203.0.113.9") == "unix"
    assert find(PROXIED, "", "203.0.113.9") == "unix"
    both = ClientAddresses(["unix", "10.0.0.0/8"])
    assert find(both, None, "203.0.113.9, 10.0.0.1") == "203.0.113.9"


def test_a_long_header_is_not_read_to_its_end() -> None:
    hops = ["203.0.113.9", *["10.0.0.3"] * 30]
    assert find(PROXIED, "10.0.0.1", ",".join(hops)) == "10.0.0.3"
    assert find(PROXIED, "10.0.0.1", ",".join(hops[:20])) == "203.0.113.9"
    assert find(PROXIED, "10.0.0.1", "1," * 500_000 + "203.0.113.9") == "203.0.113.9"


def test_text_longer_than_an_address_is_cut() -> None:
    made_up = [f"{number}{'x' * 50_000}" for number in range(40)]
    zones = [f"fe80::1%{text}" for text in made_up]
    tracemalloc.start()
    try:
        for text in (*made_up, *zones):
            assert find(PROXIED, "10.0.0.1", text) in {"10.0.0.1", "fe80::/64"}
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
    for text in made_up:
        assert len(find(PROXIED, text)) == 64


@given(st.none() | st.text(max_size=20), st.lists(st.binary(max_size=40), max_size=4))
def test_no_header_raises_an_exception(peer: str | None, forwarded: list[bytes]) -> None:
    for addresses in (ClientAddresses(), PROXIED, SOCKET):
        assert addresses.find(peer, forwarded)
    assert PROXIED.find("10.0.0.1", forwarded)


@pytest.mark.parametrize(
    "network", ["", "proxy", "10.0.0.1/8", "10.0.0.0/33", "10.0.0", "[::1]", "Unix"]
)
def test_a_proxy_that_is_no_network_is_refused_by_name(network: str) -> None:
    with pytest.raises(ConfigurationError, match="Trusted proxy"):
        ClientAddresses([network])


@pytest.mark.parametrize(
    ("address", "network"),
    [
        *((f"2001:db8:1:{part}", "2001:db8:1::/48") for part in ("2::/64", "ffff::/64", ":5")),
        ("2001:db8:2::/64", "2001:db8:2::/48"),
        *((address, None) for address in ("192.0.2.1", "unix", "", "testclient", "::/0")),
    ],
)
def test_d14_the_site_of_an_ipv6_client(address: str, network: str | None) -> None:
    assert network_of(address) == network
