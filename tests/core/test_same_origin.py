"""Telling a cross-site write from one of the service's own pages (D11, R5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockgate.core.same_origin import cross_site, origin_of
from lockgate.errors import ConfigurationError

OWN = b"https://console.example.com"
ALLOWED = {OWN, b"http://localhost:3000"}


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://console.example.com", b"https://console.example.com"),
        ("https://console.example.com/", b"https://console.example.com"),
        ("https://console.example.com/a/b?c=d#e", b"https://console.example.com"),
        ("HTTPS://Console.Example.COM", b"https://console.example.com"),
        ("https://console.example.com:443", b"https://console.example.com"),
        ("http://console.example.com:80/", b"http://console.example.com"),
        ("https://console.example.com:80", b"https://console.example.com:80"),
        ("http://localhost:3000", b"http://localhost:3000"),
        ("https://user:secret@example.com/x", b"https://example.com"),
        ("https://[2001:db8::1]:8443/x", b"https://[2001:db8::1]:8443"),
        ("http://[::1]", b"http://[::1]"),
        ("http://[0:0:0:0:0:0:0:1]", b"http://[::1]"),
        ("http://127.0.0.1:80", b"http://127.0.0.1"),
        ("https://xn--bcher-kva.example", b"https://xn--bcher-kva.example"),
        ("https://my_app.example.", b"https://my_app.example."),
        ("https://example.com:", b"https://example.com"),
    ],
)
def test_the_origin_of_a_url_is_as_browsers_write_it(url: str, origin: bytes) -> None:
    assert origin_of(url) == origin
    assert origin_of(origin.decode()) == origin


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "//example.com", "/path", "ftp://example.com", "file:///etc", "null"),
        *("https://", "https:///path", "https://:443", "https://host:99999", "https://host:port"),
        *("https://[::1", "*", "https://*.example.com", "https://*", "https://exa mple.com"),
        *("https://example.com,https://b.example", "https://example.com;b", "https://127.1"),
        *("https://b\u00fccher.example", "https://ex%61mple.com", "https://.example.com"),
        *("https://a..example.com", "https://0x7f000001", "https://[fe80::1%eth0]"),
        "https://{tenant}.example.com",
    ],
)
def test_a_url_without_scheme_or_host_has_no_origin(url: str) -> None:
    with pytest.raises(ConfigurationError, match="no web address"):
        origin_of(url)


EVIL, LOCAL = b"https://evil.example", b"http://localhost:3000"
SAME = b"same-origin"
OWN_WRITES: list[tuple[list[bytes], list[bytes]]] = [
    # The origin alone decides, where there is one.
    *(([site], [OWN]) for site in (SAME, b"cross-site", b"same-site", b"", b"same-party")),
    *([([], [OWN]), ([], [LOCAL]), ([b"cross-site"], [LOCAL]), ([SAME, b"cross-site"], [OWN])]),
    *(([site], []) for site in (SAME, b"none", b" Same-Origin ", b"None")),
    ([], []),
]
FOREIGN_WRITES: list[tuple[list[bytes], list[bytes]]] = [
    *(([site], []) for site in (b"cross-site", b"same-site", b" Cross-Site ", b"", b"same-party")),
    *(([site], []) for site in (b"same-origin, cross-site", b"same-origin,same-origin")),
    *(([SAME, site], []) for site in (b"cross-site", SAME, b"none")),
    ([b"same-origin;x"], []),
    *(([site], [EVIL]) for site in (b"none", SAME)),
    *(([], [origin]) for origin in (EVIL, b"null", b"", OWN + b"," + OWN, OWN + b"/")),
    *(([], [OWN + rest]) for rest in (b".evil.example", b":8443", b" https://evil.example", b"\n")),
    *([([], [OWN, OWN]), ([SAME], [OWN, OWN]), ([], [OWN, EVIL])]),
    ([], [b"http://console.example.com"]),
]


@pytest.mark.parametrize(
    ("sites", "origins", "foreign"),
    [
        *((*write, False) for write in OWN_WRITES),
        *((*write, True) for write in FOREIGN_WRITES),
    ],
)
def test_a_cross_site_write_is_detected_R5(
    sites: list[bytes], origins: list[bytes], foreign: bool
) -> None:
    assert cross_site(sites, origins, ALLOWED) is foreign


def test_without_any_origin_allowed_every_page_is_foreign() -> None:
    assert cross_site([], [OWN], ())
    assert not cross_site([b"same-origin"], [], ())


@given(st.lists(st.binary(max_size=12), max_size=3), st.lists(st.binary(max_size=30), max_size=3))
def test_only_an_allowed_origin_alone_passes(sites: list[bytes], origins: list[bytes]) -> None:
    if not cross_site(sites, origins, ALLOWED):
        assert len(origins) <= 1
        assert set(origins) <= ALLOWED
        assert origins or len(sites) <= 1
