"""Changes to a request's target: other spellings of a path, and targets that are no path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from .attack import Mutation
from .wire import Request


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
    yield from _before("language", b"/de", b"/en", b"/DE", b"/fr", b"/de-at", b"/de/de", b"/en/de")
    yield _path("language", "no prefix", lambda path: path.removeprefix(b"/de"))
    yield from _before("prefix", b"/shop", b"/shop/shop", b"/api", b"/sub", b"/metrics", b"/files")
    yield from _before("prefix", b"/shop/", b"/shop/..", b"shop", b"/shop%2f..", b"/x/shop")
    yield _path("prefix", "twice", lambda path: path + path)
    yield _path("prefix", "without the last segment", lambda path: path.rpartition(b"/")[0])
    yield _path("prefix", "its last byte missing", lambda path: path[:-1])
    yield _path("prefix", "without the first segment", lambda p: b"/" + p[1:].partition(b"/")[2])


PATHS = (*_segments(), *_characters(), *_targets(), *_likenesses(), *_prefixes())
