"""Hostile calls of MCP servers: a call of one part, and changes to headers, body and request."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from .mcp_applications import PARTS
from .wire import Request

CREDENTIALS = ("weak", "models", "jobs", "full", "none", "garbage", "twice")
MODERN = b"2026-07-28"
LEGACY = (b"2024-11-05", b"2025-03-26", b"2025-06-18", b"2025-11-25")
METHODS = (
    *("tools/call", "resources/read", "prompts/get", "tools/list", "resources/list"),
    *("prompts/list", "ping", "initialize", "server/discover", "completion/complete"),
    *("notifications/initialized", "notifications/cancelled", "logging/setLevel", "nothing"),
)
PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Sessions = dict[str, str]
"""The session that each credential has opened."""


@dataclass
class HostileCall:
    """A call, part by part."""

    method: str
    name: str
    credential: str
    modern: bool
    session: str | None = None
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    http_method: bytes = b"POST"
    target: bytes = b"/mcp"
    changes: tuple[str, ...] = ()

    @property
    def request(self) -> Request:
        headers = list(self.headers)
        if self.session is not None:
            headers.append((b"Mcp-Session-Id", self.session.encode()))
        # HTTP/1.1 by hand sends what h2 would refuse; values stay as they are.
        return Request(self.http_method, self.target, tuple(headers), self.body, self.credential)


Change = Callable[[HostileCall, Random, Sessions], None]


def named(method: str, name: str) -> list[tuple[bytes, bytes]]:
    """The headers of a request of today's protocol version."""
    found = [(b"MCP-Protocol-Version", MODERN), (b"Mcp-Method", method.encode())]
    if method in PARAMETERS:
        found.append((b"Mcp-Name", encoded(name)))
    return found


def encoded(name: str) -> bytes:
    if name.isascii() and name.isprintable():
        return name.encode()
    return b"=?base64?" + base64.b64encode(name.encode("utf-8", "surrogatepass")) + b"?="


def message(method: str, name: str, *, modern: bool, id: Any = 1) -> dict[str, Any]:
    params: dict[str, Any] = {}
    if method in PARAMETERS:
        params[PARAMETERS[method]] = name
    if method == "initialize":
        info = {"name": "x", "version": "1"}
        params |= {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    if modern:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def plain(
    method: str, name: str, credential: str, sessions: Sessions, *, modern: bool
) -> HostileCall:
    """A call as a good client makes it."""
    made = HostileCall(method, name, credential, modern)
    made.headers = [
        (b"Content-Type", b"application/json"),
        (b"Accept", b"application/json, text/event-stream"),
    ]
    if modern:
        made.headers += named(method, name)
    else:
        made.headers.append((b"MCP-Protocol-Version", LEGACY[-1]))
        made.session = sessions.get(credential)
    made.body = json.dumps(message(method, name, modern=modern)).encode()
    return made


def hostile(random: Random, sessions: Sessions) -> HostileCall:
    """One call with up to four changes."""
    part = random.choice(PARTS)
    method, _, name = part.sample.partition(" ")
    credential = random.choice((*CREDENTIALS, "full", "full"))
    call = plain(method, name, credential, sessions, modern=random.random() < 0.5)
    for change in random.choices(CHANGES, k=random.choice((0, 1, 1, 2, 2, 3, 4))):
        change(call, random, sessions)
        call.changes = (*call.changes, change.__name__)
    return call


def _other(random: Random) -> tuple[str, str]:
    if random.random() < 0.3:
        return random.choice(METHODS), random.choice(PARTS).sample.partition(" ")[2]
    method, _, name = random.choice(PARTS).sample.partition(" ")
    return method, name


def _spelled(name: str, random: Random) -> str:
    """Another spelling of a name, which a lax reader may take for the same."""
    return random.choice(
        (
            *(name.upper(), name.title(), f" {name}", f"{name} ", f"{name}\0", f"{name}\n"),
            *(
                f"{name}/",
                f"./{name}",
                name.replace("e", "\u0435"),
                f"{name}\u200b",
                f"\ufeff{name}",
            ),
            *(name.replace("ö", "o\u0308"), name.replace("t", "%74"), f"{name}?x=1", f"{name}#x"),
            *(name.replace("notes://", "NOTES://"), name.replace("notes://", "notes:///")),
            *(name.replace("secret", "%73ecret"), name.replace("secret", "x/../secret"), ""),
            *(name.replace("secret", "secre%74"), name.replace("secret", "./secret")),
        )
    )


def other_call_in_headers(call: HostileCall, random: Random, _: Sessions) -> None:
    method, name = _other(random)
    kept = [h for h in call.headers if not h[0].lower().startswith(b"mcp-")]
    call.headers = [*kept, *named(method, name)[0 if call.modern else 1 :]]
    if not call.modern and random.random() < 0.5:
        call.headers.append((b"MCP-Protocol-Version", random.choice(LEGACY)))


def other_name_in_headers(call: HostileCall, random: Random, _: Sessions) -> None:
    name = _other(random)[1] if random.random() < 0.5 else _spelled(call.name, random)
    call.headers = [h for h in call.headers if h[0].lower() != b"mcp-name"]
    call.headers.append((b"Mcp-Name", encoded(name)))


def other_call_in_body(call: HostileCall, random: Random, _: Sessions) -> None:
    method, name = _other(random)
    call.body = json.dumps(message(method, name, modern=call.modern)).encode()


def other_spelling_in_body(call: HostileCall, random: Random, _: Sessions) -> None:
    name = _spelled(call.name, random)
    ascii_only = random.random() < 0.5
    text = json.dumps(message(call.method, name, modern=call.modern), ensure_ascii=ascii_only)
    call.body = text.encode("utf-8", "surrogatepass")


def other_spelling_everywhere(call: HostileCall, random: Random, sessions: Sessions) -> None:
    name = _spelled(call.name, random)
    made = plain(call.method, name, call.credential, sessions, modern=call.modern)
    call.headers, call.body = made.headers, made.body


def dropped_header(call: HostileCall, random: Random, _: Sessions) -> None:
    if call.headers:
        call.headers.pop(random.randrange(len(call.headers)))


def repeated_header(call: HostileCall, random: Random, _: Sessions) -> None:
    method, name = _other(random)
    extra = random.choice(
        (
            *named(method, name),
            *named(call.method, call.name),
            (b"MCP-Protocol-Version", random.choice(LEGACY)),
            (b"Content-Type", b"text/plain"),
        )
    )
    call.headers.insert(random.randrange(len(call.headers) + 1), extra)


def cased_header(call: HostileCall, random: Random, _: Sessions) -> None:
    change = random.choice((bytes.upper, bytes.lower, bytes.title, bytes.swapcase))
    call.headers = [(change(name), value) for name, value in call.headers]


def look_alike_header(call: HostileCall, random: Random, _: Sessions) -> None:
    name = random.choice(
        (b"Mcp_Name", b"Mcp-Name-", b"X-Mcp-Name", b"Mcp_Method", b"Mcp-Param-Name", b"Mcp-Tool")
    )
    call.headers.append((name, encoded(_other(random)[1])))


def odd_header_value(call: HostileCall, random: Random, _: Sessions) -> None:
    name = random.choice((b"Mcp-Name", b"Mcp-Method", b"MCP-Protocol-Version"))
    good = call.name.encode()
    base = base64.b64encode(good)
    value = random.choice(
        (
            *(b"", b" ", good.upper(), b"\t" + good, good + b"\t", b'"' + good + b'"'),
            *(b"=?base64?" + base + b"?=", b"=?BASE64?" + base + b"?=", b"=?base64?" + base),
            *(b"=?base64?" + base.rstrip(b"=") + b"?=", b"=?base64??=", b"=?base64?/w==?="),
            *(good + b", " + good, good + b";x", b"tools/call", b"TOOLS/CALL", b"tools%2fcall"),
            *("größe".encode(), "größe".encode("latin-1"), b"\xff\xfe", b"x" * 4000),
            *(MODERN + b" ", b"2026-7-28", b"2099-01-01", b"2025-11-25", b"draft", b"1"),
        )
    )
    call.headers = [h for h in call.headers if h[0].lower() != name.lower()]
    call.headers.append((name, value))


def other_version(call: HostileCall, random: Random, _: Sessions) -> None:
    call.headers = [h for h in call.headers if h[0].lower() != b"mcp-protocol-version"]
    version = random.choice((None, MODERN, *LEGACY, b"2099-01-01", b""))
    if version is not None:
        call.headers.append((b"MCP-Protocol-Version", version))


def member_twice(call: HostileCall, random: Random, _: Sessions) -> None:
    method, name = _other(random)
    other = json.dumps(message(method, name, modern=call.modern)["params"])
    extra = random.choice(
        (f'"method":{json.dumps(method)}', f'"params":{other}', '"id":2', '"jsonrpc":"2.0"')
    )
    body = call.body.decode("latin-1")
    if body[:1] == "{" and random.random() < 0.5:
        call.body = ("{" + extra + "," + body[1:]).encode("latin-1")
    elif body[-1:] == "}":
        call.body = (body[:-1] + "," + extra + "}").encode("latin-1")


def name_twice(call: HostileCall, random: Random, _: Sessions) -> None:
    parameter = PARAMETERS.get(call.method, "name")
    other = json.dumps(_other(random)[1]).encode()
    mark = b'"' + parameter.encode() + b'": '
    spelled = random.choice((mark, mark.replace(b"n", b"\\u006e"), mark.replace(b"u", b"\\u0075")))
    first = spelled + other + b", " + mark
    call.body = call.body.replace(mark, first, 1)


def cased_members(call: HostileCall, random: Random, _: Sessions) -> None:
    method, name = _other(random)
    made = message(call.method, call.name, modern=call.modern)
    other = message(method, name, modern=call.modern)
    key = random.choice(("Method", "METHOD", "Params", "PARAMS", "Id", "method ", "\ufeffmethod"))
    made[key] = other.get(key.lower().strip("\ufeff "), 1)
    if isinstance(made["params"], dict):
        made["params"][random.choice(("Name", "NAME", "uri", "name", "tool", "Uri"))] = name
    call.body = json.dumps(made).encode()


def odd_member(call: HostileCall, random: Random, _: Sessions) -> None:
    made = message(call.method, call.name, modern=call.modern)
    odd = random.choice((None, 0, [], {}, [call.name], {"x": call.name}, True, "x" * 70_000))
    place = random.choice(("jsonrpc", "id", "method", "params", "name"))
    if place == "name":
        made["params"][PARAMETERS.get(call.method, "name")] = odd
    else:
        made[place] = odd
    call.body = json.dumps(made).encode()


def notification(call: HostileCall, _: Random, __: Sessions) -> None:
    made = message(call.method, call.name, modern=call.modern)
    del made["id"]
    call.body = json.dumps(made).encode()


def response(call: HostileCall, random: Random, _: Sessions) -> None:
    made = message(call.method, call.name, modern=call.modern)
    made[random.choice(("result", "error"))] = {}
    if random.random() < 0.5:
        del made["method"]
    call.body = json.dumps(made).encode()


def batch(call: HostileCall, random: Random, _: Sessions) -> None:
    calls = [message(*_other(random), modern=call.modern) for _ in range(random.randrange(4))]
    mine = message(call.method, call.name, modern=call.modern)
    made: Any = random.choice(([mine, *calls], [*calls, mine], [[mine], *calls], [mine] * 60))
    call.body = json.dumps(made).encode()


def odd_body(call: HostileCall, random: Random, _: Sessions) -> None:
    body = call.body
    call.body = random.choice(
        (
            *(b"", b" ", body[:-1], body + b"x", body + body, b"\xef\xbb\xbf" + body, b"[" * 5000),
            *(body.decode("utf-8", "replace").encode("utf-16"), body.replace(b'"', b"'")),
            *(body.replace(b":", b"\0:"), body + b" " * 1_200_000, b"null", b'"' + body),
            *(body.replace(b"1", b"NaN"), body.replace(b"}", b",}"), b"/**/" + body, b"\xff"),
            *(body.replace(b"e", b"\\u0065"), body.replace(b"1", b"1" * 5000)),
        )
    )


def other_content_type(call: HostileCall, random: Random, _: Sessions) -> None:
    call.headers = [h for h in call.headers if h[0].lower() != b"content-type"]
    kind = random.choice(
        (
            *(b"text/plain", b"application/json; charset=utf-16", b"APPLICATION/JSON", b""),
            *(b"application/json-rpc", b"multipart/form-data; boundary=x", b"text/event-stream"),
            b"application/json, text/plain",
        )
    )
    call.headers.append((b"Content-Type", kind))
    if random.random() < 0.3:
        call.headers.append((b"Content-Encoding", random.choice((b"gzip", b"identity"))))


def other_accept(call: HostileCall, random: Random, _: Sessions) -> None:
    call.headers = [h for h in call.headers if h[0].lower() != b"accept"]
    call.headers.append((b"Accept", random.choice((b"text/html", b"*/*", b"application/json"))))


def other_http_method(call: HostileCall, random: Random, sessions: Sessions) -> None:
    methods = (b"GET", b"DELETE", b"PUT", b"PATCH", b"HEAD", b"OPTIONS", b"post", b"CALL")
    call.http_method = random.choice(methods)
    if call.http_method == b"GET" and random.random() < 0.9:
        call.headers = [h for h in call.headers if h[0].lower() != b"accept"]  # No stream.
    if call.http_method == b"DELETE" and call.session == sessions.get(call.credential):
        call.session = "unknown"  # Its own session would end.
    if random.random() < 0.3:
        call.headers.append((b"X-HTTP-Method-Override", b"POST"))


def session_of_another(call: HostileCall, random: Random, sessions: Sessions) -> None:
    others = [s for owner, s in sessions.items() if owner != call.credential]
    call.session = random.choice([*others, "unknown", "", "x" * 3000, "\u00e9"])
    if call.http_method == b"POST" and random.random() < 0.2:
        call.http_method = b"DELETE"
    if random.random() < 0.2:
        call.headers.append((b"mcp-session-id", random.choice(others).encode()))


def other_target(call: HostileCall, random: Random, _: Sessions) -> None:
    call.target = random.choice(
        (
            *(
                b"/mcp/",
                b"//mcp",
                b"/MCP",
                b"/mcp//",
                b"/%6dcp",
                b"/mcp%2f",
                b"/mcp;x",
                b"/mcp?x=1",
            ),
            *(b"/./mcp", b"/x/../mcp", b"/mcp/.", b"/mcp%00", b"/mcp#x", b"/sse", b"/messages/"),
            *(b"http://127.0.0.1/mcp", b"/mcp/mcp", b"/", b"mcp", b"*", b"/mcp%0a", b"/mcp%20"),
        )
    )


CHANGES: tuple[Change, ...] = (
    *(other_call_in_headers, other_name_in_headers, other_call_in_body, other_spelling_in_body),
    *(
        other_spelling_everywhere,
        dropped_header,
        repeated_header,
        cased_header,
        look_alike_header,
        odd_header_value,
    ),
    *(other_version, member_twice, name_twice, cased_members, odd_member, notification, response),
    *(batch, odd_body, other_content_type, other_accept, other_http_method, session_of_another),
    other_target,
)


def simpler(call: HostileCall) -> HostileCall:
    """The same call, for a message: without the rest of a long body."""
    return replace(call, body=call.body[:500])
