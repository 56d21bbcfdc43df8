"""Changes to everything in a request but its target: methods, headers, how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .attack import Mutation, websocket
from .record import ID
from .wire import PLACE, Request


def _header(family: str, name: bytes, value: bytes, *, http1: bool = False) -> Mutation:
    def apply(request: Request) -> Request:
        return request._replace(headers=(*request.headers, (name, value)))

    return Mutation(family, f"{name.decode()}: {value!r}", apply, http1)


def _preflight(
    origin: bytes | None, method: bytes | None, by: bytes = b"OPTIONS"
) -> Callable[[Request], Request]:
    def apply(request: Request) -> Request:
        headers = request.headers
        if origin is not None:
            headers += ((b"Origin", origin),)
        if method is not None:
            headers += ((b"Access-Control-Request-Method", method),)
        return request._replace(method=by, headers=headers)

    return apply


def _elsewhere(name: bytes, target: bytes = b"/health") -> Mutation:
    """Ask for a public path, and name the handler's in a header."""

    def apply(request: Request) -> Request:
        named = (name, request.target)
        return request._replace(target=target, headers=(*request.headers, named))

    return Mutation("path in a header", f"{name.decode()}, asking for {target!r}", apply)


def _below(name: bytes, prefix: bytes, *, shown: bool) -> Mutation:
    """Name a prefix of the path in a header, which is in the target as well, or is not."""

    def apply(request: Request) -> Request:
        target = prefix + request.target if shown else request.target
        return request._replace(target=target, headers=(*request.headers, (name, prefix)))

    where = "shown" if shown else "not shown"
    return Mutation("prefix in a header", f"{name.decode()}: {prefix!r}, {where}", apply)


def _set(family: str, name: str, *, http1: bool = True, **parts: object) -> Mutation:
    return Mutation(
        family,
        name,
        lambda request: request._replace(**parts),  # type: ignore[arg-type]
        http1,
    )


def _hidden(name: str, *headers: tuple[bytes, bytes], chunk: bool) -> Mutation:
    """Put a second request into the body of a public one, behind a doubtful length."""

    def apply(request: Request) -> Request:
        line = request.method + b" " + request.target + b" HTTP/1.1\r\n"
        inner = line + b"Host: h\r\n" + ID.encode() + b": " + PLACE + b"\r\n\r\n"
        body = b"0\r\n\r\n" + inner if chunk else inner
        return Request(
            b"POST", b"/health", (*request.headers, *headers), body, request.credential,
            length=not any(n.lower() == b"content-length" for n, _ in headers), alone=True,
        )  # fmt: skip

    return Mutation("hidden request", name, apply, http1=True)


def _preflights() -> Iterator[Mutation]:
    """CORS preflights, true and false ones."""
    for origin, method in (
        (b"https://page.test", b"GET"),
        (b"x", b"x"),
        (b"null", b"POST"),
        (b"", b""),
        (b"https://page.test", None),
        (None, b"GET"),
    ):
        name = f"Origin {origin!r}, method {method!r}"
        yield Mutation("preflight", name, _preflight(origin, method))
    for by in (b"options", b"GET", b"POST", b"DELETE"):
        apply = _preflight(b"https://page.test", b"GET", by)
        yield Mutation("preflight", f"headers of one with {by!r}", apply)


def _methods() -> Iterator[Mutation]:
    usual = b"GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT"
    others = b"get post Post delete Delete FOO PROPFIND QUERY PURGE HEADX _"
    for method in (*usual.split(), *others.split(), b"X" * 80):
        yield _set("method", method.decode(), http1=False, method=method)
    for method in (b"GET,POST", b"GET/", b"*", b"", b"G\xc9T", b"GET\x00", b"POST\t", b" POST"):
        yield _set("odd method", repr(method), method=method)
    for name in (b"X-HTTP-Method-Override", b"X-HTTP-Method", b"X-Method-Override", b"_method"):
        for value in (b"GET", b"POST", b"DELETE"):
            yield _header("method override", name, value)
    form = ((b"Content-Type", b"application/x-www-form-urlencoded"),)
    for by in (b"GET", b"POST"):
        yield _set(
            "method override",
            f"_method in a form by {by.decode()}",
            http1=False,
            method=by,
            body=b"_method=DELETE",
            headers=form,
        )


def _paths_in_headers() -> Iterator[Mutation]:
    for name in (b"X-Original-URL", b"X-Rewrite-URL", b"X-Original-URI", b"X-Forwarded-Path"):
        yield _elsewhere(name)
    for name in (b"X-Forwarded-Uri", b"Request-Uri", b"PATH_INFO", b"Path-Info", b"RAW_URI"):
        yield _elsewhere(name)
    for name in b"X-Forwarded-Prefix X-Script-Name Script-Name SCRIPT_NAME Root-Path".split():
        for prefix in (b"/shop", b"/api", b"/x/.."):
            for shown in (False, True):
                yield _below(name, prefix, shown=shown)
    for value in (b"/", b"", b"x", b"/%2f"):
        yield _header("prefix in a header", b"SCRIPT_NAME", value)


def _hosts() -> Iterator[Mutation]:
    spelled = b"admin.test|ADMIN.TEST|admin.test:80|admin.test.|admin.test:|admin.test.:80"
    spaced = b"admin.test |admin.test\t| admin.test|shop.test|h||a b|\xff"
    others = b"admin.test/x|a,admin.test|admin.test@h|h@admin.test|@admin.test|.admin.test"
    ends = b"admin.test/|admin.test\\|admin.test?|shop.test.|@shop.test"
    for host in b"|".join([spelled, spaced, others, ends]).split(b"|"):
        yield _set("host", f"Host {host!r}", http1=False, host=host)
    yield _set("host", "no Host", host=None)
    for host in (b"admin.test", b"shop.test", b"h"):
        yield _header("host", b"Host", host, http1=True)
        yield _header("host", b"host", host)
        yield _header("host", b"X-Forwarded-Host", host)
        yield _header("host", b"Forwarded", b"host=" + host)
    yield _header("forwarded", b"X-Forwarded-For", b"127.0.0.1")
    yield _header("forwarded", b"X-Forwarded-For", b"\xff, x, [::1]:80")
    yield _header("forwarded", b"X-Forwarded-Proto", b"wss")
    yield _header("forwarded", b"X-Forwarded-Proto", b"x:y")


def _languages() -> Iterator[Mutation]:
    for language in (b"de", b"en", b"DE", b"fr", b"de-at", b"\xff"):
        yield _header("language", b"Accept-Language", language)
        yield _header("language", b"Cookie", b"django_language=" + language)


def _upgrades() -> Iterator[Mutation]:
    yield Mutation("upgrade", "a WebSocket handshake", websocket, http1=True)
    yield _header("upgrade", b"Connection", b"Upgrade", http1=True)
    yield _header("upgrade", b"Upgrade", b"websocket", http1=True)
    h2c = (
        (b"Connection", b"Upgrade, HTTP2-Settings"),
        (b"Upgrade", b"h2c"),
        (b"HTTP2-Settings", b"AAMAAABkAARAAAAAAAIAAAAA"),
    )
    yield Mutation(
        "upgrade",
        "h2c",
        lambda request: request._replace(headers=(*request.headers, *h2c), alone=True),
        http1=True,
    )


def _credentials() -> Iterator[Mutation]:
    for value in (b"Bearer", b"", b"Basic eDp5", b"Bearer \xff", b"Bearer acme_live_x", b"," * 300):
        yield _header("credential", b"Authorization", value)
    yield _header("credential", b"Proxy-Authorization", b"Bearer x")
    yield _header("credential", b"Cookie", b"__session=x; __session=y")


def _writings() -> Iterator[Mutation]:
    """How a request is written."""
    yield _set("writing", "HTTP/1.0", version=b" HTTP/1.0", alone=True)
    yield _set("writing", "HTTP/2.0", version=b" HTTP/2.0", alone=True)
    yield _set("writing", "HTTP/1.2", version=b" HTTP/1.2", alone=True)
    yield _set("writing", "HTTP/0.9", version=b"", alone=True)
    yield _set("writing", "line feeds", newline=b"\n", alone=True)
    yield _set("writing", "carriage returns", newline=b"\r", alone=True)
    yield _set("writing", "a tab in the request line", space=b"\t", alone=True)
    yield _set("writing", "two spaces in the request line", space=b"  ", alone=True)
    yield _set("writing", "an empty line first", before=b"\r\n", alone=True)
    yield _set("writing", "a space first", before=b" ", alone=True)
    expecting = ((b"Expect", b"100-continue"),)  # waitress then waits for a body that is empty.
    yield _set("writing", "Expect", headers=expecting, alone=True)
    yield _header("writing", b"Content-Length ", b"0", http1=True)
    yield _header("writing", b"X", b"a\r\n b", http1=True)
    yield _header("writing", b"X", b"a\rb", http1=True)
    yield _header("writing", b"X", b"\xff\x00", http1=True)
    yield _header("writing", b"X" * 200, b"y" * 4000)
    yield _set("writing", "a body", http1=False, body=b"{}")


def _hidden_requests() -> Iterator[Mutation]:
    chunked = (b"Transfer-Encoding", b"chunked")
    yield _hidden("behind chunks", chunked, chunk=True)
    yield _hidden("behind chunks and a length", chunked, (b"Content-Length", b"4"), chunk=True)
    yield _hidden("behind xchunked", (b"Transfer-Encoding", b"xchunked"), chunk=True)
    yield _hidden("behind chunks, with a tab", (b"Transfer-Encoding", b"\tchunked"), chunk=True)
    yield _hidden("behind two encodings", chunked, (b"Transfer-Encoding", b"x"), chunk=True)
    yield _hidden(
        "behind chunked, identity", (b"Transfer-Encoding", b"chunked, identity"), chunk=True
    )
    yield _hidden("behind a length of 0", (b"Content-Length", b"0"), chunk=False)
    yield _hidden("behind a length of +0", (b"Content-Length", b"+0"), chunk=False)
    lengths = ((b"Content-Length", b"0"), (b"Content-Length", b"60"))
    yield _hidden("behind two lengths", *lengths, chunk=False)


OTHERS = (
    *_preflights(),
    *_methods(),
    *_paths_in_headers(),
    *_hosts(),
    *_languages(),
    *_upgrades(),
    *_credentials(),
    *_writings(),
    *_hidden_requests(),
)
