"""Allow-lists of addresses: canonical form, problems, and which clients they have."""

from ipaddress import ip_network
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.allowed_addresses import contains, read_addresses


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("192.0.2.0/255.255.255.0", "192.0.2.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:DB8:0::7", "2001:db8::7"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
    ],
)
def test_an_address_or_network_is_kept_in_canonical_form(given: str, kept: str) -> None:
    assert read_addresses([given, given]) == ((kept,), [])
    assert read_addresses([kept]) == ((kept,), [])


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("192.0.2.7/24", "write 192.0.2.0/24 for the network"),
        ("2001:db8::7/64", "write 2001:db8::/64 for the network"),
        ("fe80::1%eth0", "zone"),
        ("192.0.2.07", "write it like"),
        ("192.0.2", "write it like"),
        ("example.com", "write it like"),
        ("", "write it like"),
        (" 192.0.2.7", "write it like"),
        ("192.0.2.7\n", "write it like"),
        ("\u0661\u0669\u0662.0.2.7", "write it like"),
        ("x" * 1000, "write it like"),
    ],
)
def test_a_wrong_entry_is_named_with_the_remedy(given: str, advice: str) -> None:
    kept, (problem,) = read_addresses([given])
    assert kept == ()
    assert advice in problem
    assert len(problem) < 250


def test_a_list_has_at_most_32_entries() -> None:
    entries = [f"192.0.2.{n}" for n in range(33)]
    assert read_addresses(entries[:32]) == (tuple(entries[:32]), [])
    assert read_addresses(entries) == ((), ["Give at most 32 addresses and networks."])
    assert read_addresses("192.0.2.7") == ((), ["Use a list of addresses: ['192.0.2.7']."])
    for wrong in (5, None, [5], [b"192.0.2.7"]):
        problem = "Use a list of addresses and networks, each a text."
        assert read_addresses(cast(list[str], wrong)) == ((), [problem])


@pytest.mark.parametrize(
    ("client", "is_in"),
    [
        ("192.0.2.7", True),
        ("192.0.2.255", True),
        ("192.0.3.0", False),
        ("::ffff:192.0.2.7", True),
        ("2001:db8::7", True),
        ("2001:db8::8", False),
        ("2001:db8::7%eth0", True),
        ("", False),
        ("unix", False),
        ("testclient", False),
        ("192.0.2.0/24", False),
    ],
)
def test_a_list_has_the_clients_of_its_networks(client: str, is_in: bool) -> None:
    assert contains(("192.0.2.0/24", "2001:db8::7"), client) is is_in


@given(
    st.lists(st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str), max_size=5),
    st.ip_addresses(v=4) | st.ip_addresses(v=6),
)
def test_a_list_of_addresses_has_exactly_these(listed: list[str], client: object) -> None:
    kept, problems = read_addresses(listed)
    assert problems == []
    assert all(str(ip_network(entry)) in (entry, f"{entry}/32", f"{entry}/128") for entry in kept)
    canonical, _ = read_addresses([str(client)])
    assert contains(kept, str(client)) is (canonical[0] in kept)
