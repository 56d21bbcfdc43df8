"""What an attacker does to a request, one step each, and the seeded choice among the steps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from .handlers import Handler
from .wire import Request

CREDENTIALS = ("none", "weak", "models", "jobs", "full", "twice", "garbage")


class Mutation(NamedTuple):
    """One change to a request."""

    family: str
    """What it is about; findings of one family are one finding."""
    name: str
    apply: Callable[[Request], Request]
    http1: bool = False
    """Whether only HTTP/1.1 can carry it."""


class Attack(NamedTuple):
    """A request made of a handler's own, and the changes to it."""

    handler: Handler
    method: str
    credential: str
    mutations: tuple[Mutation, ...] = ()

    @property
    def request(self) -> Request:
        request = Request(
            self.method.encode(), self.handler.sample.encode(), credential=self.credential
        )
        if self.handler.host is not None:
            request = request._replace(host=self.handler.host.encode())
        if self.handler.websocket:
            request = websocket(request)
        for mutation in self.mutations:
            request = mutation.apply(request)
        return request

    @property
    def families(self) -> frozenset[str]:
        return frozenset(mutation.family for mutation in self.mutations)

    def simpler(self) -> Iterator[Attack]:
        """The same attack without one of its changes."""
        for place in range(len(self.mutations)):
            rest = self.mutations[:place] + self.mutations[place + 1 :]
            yield self._replace(mutations=rest)


# --- the path -----------------------------------------------------------------------------


def _path(family: str, name: str, change: Callable[[bytes], bytes]) -> Mutation:
    def apply(request: Request) -> Request:
        path, mark, query = request.target.partition(b"?")
        return request._replace(target=change(path) + mark + query)

    return Mutation(family, name, apply)


def _append(tail: bytes, path: bytes) -> bytes:
    return path + tail


def _prepend(head: bytes, path: bytes) -> bytes:
    return head + path


def _after(family: str, *tails: bytes) -> Iterator[Mutation]:
    for tail in tails:
        yield _path(family, f"{tail!r} after it", partial(_append, tail))


def _before(family: str, *heads: bytes) -> Iterator[Mutation]:
    for head in heads:
        yield _path(family, f"{head!r} before it", partial(_prepend, head))


def _last(path: bytes, new: Callable[[bytes], bytes]) -> bytes:
    """Change the last segment that is not empty."""
    stripped = path.rstrip(b"/")
    head, slash, segment = stripped.rpartition(b"/")
    return head + slash + new(segment) + path[len(stripped) :]


def _last_slash(text: bytes, path: bytes) -> bytes:
    stripped = path.rstrip(b"/")
    head, _, segment = stripped.rpartition(b"/")
    return head + text + segment + path[len(stripped) :]


def _first_slash(text: bytes, path: bytes) -> bytes:
    return text + path[1:]


def _for_slash(family: str, *new: bytes) -> Iterator[Mutation]:
    """Write the last inner slash differently, and the first one."""
    for text in new:
        yield _path(family, f"{text!r} for the last slash", partial(_last_slash, text))
        yield _path(family, f"{text!r} for the first slash", partial(_first_slash, text))


def _for_segment(family: str, name: str, new: Callable[[bytes], bytes]) -> Mutation:
    return _path(family, f"{name} in the last segment", lambda path: _last(path, new))


def _percent(segment: bytes) -> bytes:
    return b"".join(b"%%%02x" % byte for byte in segment)


def _double(segment: bytes) -> bytes:
    return b"".join(b"%%25%02x" % byte for byte in segment)


def _like(segment: bytes, pairs: dict[str, str]) -> bytes:
    """Replace the first letter that has a look-alike; append one where none has."""
    for letter, other in pairs.items():
        if letter.encode() in segment:
            return segment.replace(letter.encode(), _percent(other.encode()), 1)
    return segment + _percent(next(iter(pairs.values())).encode())


def _segments() -> Iterator[Mutation]:
    """Slashes, dots and what may pass for them."""
    yield from _after("slash", b"/")
    yield _path("slash", "no slash after it", lambda path: path.rstrip(b"/") or b"/")
    yield from _after("empty segment", b"//", b"///")
    yield from _before("empty segment", b"/", b"//")
    yield from _for_slash("empty segment", b"//", b"///")
    yield _path("empty segment", "every slash twice", lambda p: p.replace(b"/", b"//"))
    # Dots.
    yield from _after(
        "dot segment", b"/.", b"/./", b"/..", b"/x/..", b"/x/../", b"/%2e", b"/%2e%2e", b"/x/%2e."
    )
    yield from _before("dot segment", b"/.", b"/..", b"/x/..", b"/%2e", b"/x/%2e%2e", b"/x/.%2E")
    yield from _for_slash("dot segment", b"/./", b"/x/../", b"/%2e/", b"/x/%2e%2e/")
    yield from _before("dot segment", b"/health/..", b"/files/..", b"/metrics/..", b"/sub/..")
    # Slashes in disguise.
    yield from _for_slash("encoded slash", b"%2f", b"%2F", b"/%2f", b"%2f/", b"%2f%2e%2f")
    yield from _after("encoded slash", b"%2f", b"%2F", b"%2f%2f")
    yield from _before("encoded slash", b"%2f", b"/%2f", b"/x%2f%2e%2e", b"/x/..%2f..")
    yield from _for_slash("double encoding", b"%252f", b"%25%32%66")
    yield from _for_slash("backslash", b"%5c", b"\\", b"/\\", b"%255c")
    yield from _after("backslash", b"%5c", b"\\", b"\\..", b"%5c%2e%2e")
    yield from _before("backslash", b"/x/..\\", b"/\\", b"/%5c", b"/x%5c..")


def _characters() -> Iterator[Mutation]:
    """Letters and other characters, written in other ways."""
    yield _for_segment("encoding", "every byte encoded", _percent)
    yield _for_segment("encoding", "the first byte encoded", lambda s: _percent(s[:1]) + s[1:])
    yield _path("encoding", "all but the first slash encoded", lambda p: p[:1] + _percent(p[1:]))
    yield _for_segment("double encoding", "every byte encoded twice", _double)
    # Control characters and white space.
    controls = tuple(b"%%%02x" % n for n in (0, 1, 8, 9, 10, 11, 12, 13, 31, 127))
    yield from _after(
        "control", *controls, b"%0d%0a", b"%0a%0a", b"/%0a", b"%0a/", b"/%00", b"/%0d"
    )
    yield from _before("control", *(b"/" + control for control in controls))
    yield from _for_slash("control", b"/%0a", b"%0a/", b"/%00", b"%00/", b"%0d/", b"/%0a/")
    yield _for_segment("control", "a line feed inside", lambda s: s[:1] + b"%0a" + s[1:])
    yield _for_segment("control", "a null inside", lambda s: s[:1] + b"%00" + s[1:])
    yield from _after(
        "raw control", b"\x00", b"\x01", b"\t", b"\x0b", b"\x0c", b"\x7f", b"\r", b"\n"
    )
    yield from _after("white space", b"%20", b" ", b"%c2%a0", b"%c2%85", b"%e2%80%a8", b"%85", b"+")
    yield from _before("white space", b" ", b"/%20", b"%20")
    # Parameters, queries, fragments.
    yield from _after(
        "parameters", b";", b";x=1", b";/", b"/;", b"/;x", b"/..;", b"/..;/", b"%3b", b"%3bx"
    )
    yield from _before("parameters", b"/;", b"/;x", b"/..;", b"/x/..;")
    yield from _for_slash("parameters", b";x/", b"/;/", b";/")
    yield from _after(
        "query",
        b"?",
        b"??",
        b"?x=/../",
        b"?/health",
        b"%3f",
        b"%3fx",
        b"?_method=POST",
        b"?format=json",
    )
    yield from _before("query", b"?", b"/?", b"/%3f")
    yield from _after("fragment", b"#", b"#x", b"#/../health", b"%23", b"%23x")
    yield from _before("fragment", b"#", b"/#", b"/%23")


def _targets() -> Iterator[Mutation]:
    """Targets that are no path."""
    yield from _before(
        "absolute form",
        *(b"http://h", b"HTTP://h", b"https://h", b"http://127.0.0.1", b"http://h:80"),
        *(b"http://user@h", b"http://", b"http:", b"x:", b"x://h", b"ws://h", b"//h", b"///h"),
        *(b"http://admin.test", b"http://h?x", b"http://h#", b"http://[::1]", b"http://h/%2e%2e"),
        *(b"/http://h", b"http:/", b"http://h/", b"x", b"h:80", b"*", b"http://h\\", b"1:"),
    )
    yield _path("absolute form", "no first slash", lambda path: path[1:])
    yield _path("absolute form", "an asterisk", lambda _: b"*")
    yield _path("absolute form", "an authority", lambda _: b"h:80")
    yield _path("absolute form", "empty", lambda _: b"")


def _likenesses() -> Iterator[Mutation]:
    """Case, tails, look-alikes, and bytes that are no text."""
    yield _path("case", "upper case", bytes.upper)
    yield _for_segment("case", "a capital", bytes.title)
    yield _for_segment("case", "the last letter a capital", lambda s: s[:-1] + s[-1:].upper())
    yield _path("case", "the first segment in capitals", lambda p: p[:4].upper() + p[4:])
    yield from _after(
        "tail", b".", b"..", b"%2e", b".json", b".html", b".api", b",", b"&", b"'", b"|", b"x", b"~"
    )
    for tail in (b"x", b"-", b"0", b"."):
        yield _for_segment("tail", f"{tail!r} at its end", partial(_append, tail))
    yield _for_segment(
        "look-alike", "full width", lambda s: _like(s, {"a": "\uff41", "o": "\uff4f"})
    )
    yield _for_segment(
        "look-alike",
        "folding letters",
        lambda s: _like(s, {"s": "\u017f", "k": "\u212a", "i": "\u0131"}),
    )
    yield _for_segment("look-alike", "combining", lambda s: s + _percent("\u0301".encode()))
    yield _for_segment(
        "look-alike", "other digits", lambda s: _like(s, {"1": "\u0661", "7": "\u0667"})
    )
    yield from _for_slash(
        "look-alike", *(_percent(c.encode()) for c in ("\uff0f", "\u2215", "\u2044", "\u29f8"))
    )
    yield from _after(
        "look-alike", *(_percent(c.encode()) for c in ("\u200b", "\ufeff", "\u00ad", "\u202e"))
    )
    yield from _before("look-alike", b"/%ef%bb%bf", b"/%e2%80%a4", b"/%ef%bc%8e%ef%bc%8e")
    yield from _after(
        "bad UTF-8", b"%ff", b"%c0%af", b"%ed%a0%80", b"%f4%90%80%80", b"\xff", b"\xe9", b"\xc3\xa9"
    )
    yield from _for_slash("bad UTF-8", b"%c0%af", b"%e0%80%af", b"%f0%80%80%af", b"\xc0\xaf")
    yield from _for_slash("bad UTF-8", b"/%c0%ae/", b"/x/%c0%ae%c0%ae/")
    yield from _after(
        "bad escape", b"%", b"%2", b"%zz", b"%u002f", b"%%", b"%2%66", b"%-1", b"%0", b"%+0"
    )
    yield from _for_slash("bad escape", b"%u002f", b"%%32%66", b"%2\n")


def _prefixes() -> Iterator[Mutation]:
    yield from _before("prefix", b"/shop", b"/shop/shop", b"/api", b"/sub", b"/metrics", b"/files")
    yield from _before("prefix", b"/shop/", b"/shop/..", b"shop", b"/shop%2f..", b"/x/shop")
    yield _path("prefix", "twice", lambda path: path + path)
    yield _path("prefix", "its last byte missing", lambda path: path[:-1])
    yield _path("prefix", "without the first segment", lambda p: b"/" + p[1:].partition(b"/")[2])


# --- methods and headers ------------------------------------------------------------------


def _header(family: str, name: bytes, value: bytes, *, http1: bool = False) -> Mutation:
    def apply(request: Request) -> Request:
        return request._replace(headers=(*request.headers, (name, value)))

    return Mutation(family, f"{name.decode()}: {value!r}", apply, http1)


def websocket(request: Request) -> Request:
    """Make a WebSocket handshake of a request."""
    headers = (
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Version", b"13"),
        (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    )
    return request._replace(headers=(*request.headers, *headers))


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
        inner = request.method + b" " + request.target + b" HTTP/1.1\r\nHost: h\r\n\r\n"
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
    for method in (
        *(b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT"),
        *(
            b"get",
            b"post",
            b"Post",
            b"FOO",
            b"PROPFIND",
            b"QUERY",
            b"PURGE",
            b"HEADX",
            b"_",
            b"X" * 80,
        ),
    ):
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
    for name in (
        b"X-Forwarded-Prefix",
        b"X-Script-Name",
        b"Script-Name",
        b"SCRIPT_NAME",
        b"Root-Path",
    ):
        for prefix in (b"/shop", b"/api", b"/x/.."):
            for shown in (False, True):
                yield _below(name, prefix, shown=shown)
    for value in (b"/", b"", b"x", b"/%2f"):
        yield _header("prefix in a header", b"SCRIPT_NAME", value)


def _hosts() -> Iterator[Mutation]:
    for host in (
        b"admin.test",
        b"ADMIN.TEST",
        b"admin.test:80",
        b"admin.test.",
        b"admin.test:",
        b"h",
    ):
        yield _set("host", f"Host {host!r}", http1=False, host=host)
    for host in (
        b"",
        b"admin.test/x",
        b"a,admin.test",
        b"admin.test@h",
        b"h@admin.test",
        b"\xff",
        b"a b",
    ):
        yield _set("host", f"Host {host!r}", http1=False, host=host)
    yield _set("host", "no Host", host=None)
    for host in (b"admin.test", b"h"):
        yield _header("host", b"Host", host, http1=True)
        yield _header("host", b"host", host)
        yield _header("host", b"X-Forwarded-Host", host)
        yield _header("host", b"Forwarded", b"host=" + host)
    yield _header("forwarded", b"X-Forwarded-For", b"127.0.0.1")
    yield _header("forwarded", b"X-Forwarded-For", b"\xff, x, [::1]:80")
    yield _header("forwarded", b"X-Forwarded-Proto", b"wss")
    yield _header("forwarded", b"X-Forwarded-Proto", b"x:y")


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
    yield _header("writing", b"Expect", b"100-continue", http1=True)
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


PATHS = (*_segments(), *_characters(), *_targets(), *_likenesses(), *_prefixes())
OTHERS = (
    *_preflights(),
    *_methods(),
    *_paths_in_headers(),
    *_hosts(),
    *_upgrades(),
    *_credentials(),
    *_writings(),
    *_hidden_requests(),
)

# A plain path, one with a last slash, one with a parameter, one with a tail, one below a mount,
# one of an application below a mount, and those whose routes take more paths than one.
_FORMS = frozenset(
    {"feed", "admin", "reports", "job", "upload", "metrics", "inner", "secret", "loose", "models"}
)
_BY_METHOD = frozenset({"method", "odd method", "preflight"})

# Which of those in OTHERS rarely tell anything about a handler, and cost a connection each.
_SLOW = frozenset({"hidden request", "writing", "upgrade"})


def plain(handlers: Iterable[Handler]) -> Iterator[Attack]:
    """Each handler's own request, by every credential."""
    for handler in handlers:
        method = "GET" if handler.methods == ("*",) else handler.methods[0]
        for credential in CREDENTIALS:
            yield Attack(handler, method, credential)


def singles(handlers: Sequence[Handler]) -> Iterator[Attack]:
    """Each change alone, by a key that is good for nothing: what it opens is open without one too.

    A path is changed for one handler of each form, a method for every handler.
    """
    for handler in handlers:
        method = "GET" if handler.methods == ("*",) else handler.methods[0]
        own = Attack(handler, method, "weak")
        if handler.name in _FORMS:
            yield from (own._replace(mutations=(mutation,)) for mutation in PATHS)
        for mutation in OTHERS:
            if mutation.family in _BY_METHOD:
                for credential in ("weak", "full"):
                    yield Attack(handler, method, credential, (mutation,))
            elif handler.name in ("admin", "start", "panel"):
                yield own._replace(mutations=(mutation,))


def combined(handlers: Sequence[Handler], source: random.Random) -> Iterator[Attack]:
    """Requests with several changes at once, without end."""
    light = [mutation for mutation in OTHERS if mutation.family not in _SLOW]
    heavy = [mutation for mutation in OTHERS if mutation.family in _SLOW]
    methods = ("GET", "POST", "DELETE", "HEAD", "PUT", "OPTIONS")
    while True:
        handler = source.choice(handlers)
        own = "GET" if handler.methods == ("*",) else handler.methods[0]
        method = own if source.random() < 0.7 else source.choice(methods)
        credential = source.choices(CREDENTIALS, (8, 8, 4, 4, 2, 1, 1))[0]
        changes = source.sample(PATHS, source.choice((1, 1, 1, 2, 2, 3)))
        if source.random() < 0.5:
            changes += source.sample(light, 1)
        if source.random() < 0.02:
            changes += source.sample(heavy, 1)
        source.shuffle(changes)
        yield Attack(handler, method, credential, tuple(changes))


def attacks(handlers: Sequence[Handler], seed: int, count: int) -> Iterator[Attack]:
    """The attacks on one application: each single change in a seeded order, then combinations.

    At least a fifth of them are combinations.
    """
    source = random.Random(seed)
    yield from plain(handlers)
    single = list(singles(handlers))
    source.shuffle(single)
    single = single[: count * 4 // 5]
    yield from single
    combinations = combined(handlers, source)
    for _ in range(count - len(single)):
        yield next(combinations)
