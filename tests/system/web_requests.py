# SPDX-License-Identifier: BSL-1.0
"""Requests to web_scripts/semantics.js, for the comparison of two servers: what each one answers, and what it does with the connection."""

from __future__ import annotations

import dataclasses

from http_wire import Closed, HttpWire, Reply
from web_server import AnyWebServer

HEAD = "HTTP/1.1\r\nHost: test\r\n"


@dataclasses.dataclass(frozen=True)
class Case:
    """`methods`: of the requests in `sent`, one for each response. `then`: requests that are sent after these responses, each after the
    last one's response. `port`: of the script's servers. `framed`: the framing of the body must be Node's, too. `differs`: why the image
    answers in another way than Node; then the two answers MUST differ."""

    name: str
    sent: bytes
    methods: tuple[str, ...] = ("GET",)
    then: tuple[bytes, ...] = ()
    port: int = 0
    framed: bool = False
    differs: str = ""


def get(target: str, fields: str = "", method: str = "GET") -> bytes:
    return f"{method} {target} {HEAD}{fields}\r\n".encode("latin-1")


def post(target: str, body: bytes, fields: str = "", method: str = "POST") -> bytes:
    return f"{method} {target} {HEAD}Content-Length: {len(body)}\r\n{fields}\r\n".encode("latin-1") + body


def chunked(target: str, *pieces: bytes, trailers: str = "", fields: str = "") -> bytes:
    head = f"POST {target} {HEAD}Transfer-Encoding: chunked\r\n{fields}\r\n".encode("latin-1")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailers.encode() + b"\r\n"


GETS = """
    hello nothing json no-content no-content-with-body not-modified status unnamed-status message write-head-message write-head-array
    write-head-merges set-headers content-length chunks encodings unicode close should-keep-alive keep-alive-header no-date own-date
    own-chunked trailers flush later immediate async early-hints processing stream drain cork errors state names missing
""".split()
# Their bodies are in pieces, or the script states a length or a coding.
FRAMED = """
    hello nothing no-content no-content-with-body not-modified content-length chunks close own-chunked trailers flush later stream drain
    cork state
""".split()
MANY_COOKIES = (
    "Cookie: a=1\r\nCookie: b=2\r\nX-Twice: 1\r\nx-twice: 2\r\nUser-Agent: first\r\nUser-Agent: second\r\nAccept: a\r\nAccept: b\r\n"
)

CASES = [
    *(Case(f"GET {name}", get(f"/{name}"), framed=name in FRAMED) for name in GETS),
    *(
        Case(f"HEAD {name}", get(f"/{name}", method="HEAD"), ("HEAD",))
        for name in "hello json content-length chunks own-chunked not-modified nothing stream".split()
    ),
    *(Case(f"{method} request", get("/request", method=method)) for method in "OPTIONS DELETE PATCH PUT PROPFIND".split()),
    Case("OPTIONS *", get("*", method="OPTIONS"), ("OPTIONS",)),
    Case("headers of a request", get("/request", MANY_COOKIES)),
    Case("values of fields are trimmed", get("/request", "X-Space: \t a b \t \r\nX-Empty:\r\nX-Latin: \xe4\r\n")),
    Case("query", get("/query?a=1&b=x%20y&a=%C3%A9&c")),
    Case("absolute form", get("http://test/hello")),
    Case("empty lines before a request", b"\r\n\r\n" + get("/hello")),
    Case("a body by its length", post("/describe", b"some text")),
    Case("an empty body", post("/describe", b"")),
    Case("a body in chunks", chunked("/describe", b"one ", b"two ", b"three")),
    Case("trailers", chunked("/describe", b"body", trailers="X-Sum: 4\r\nX-Late: yes\r\n", fields="Trailer: X-Sum\r\n")),
    Case("chunk extensions", get("/describe", "Transfer-Encoding: chunked\r\n", "POST") + b'4;a=b;c="d"\r\nbody\r\n0;last\r\n\r\n'),
    Case("echo", post("/echo", bytes(range(256)) * 300)),
    Case("iteration", post("/sum", bytes(range(256)) * 500)),
    Case("text with letters across pieces", post("/text", ("Grüße 🌍" * 5000).encode())),
    Case("readable", post("/readable", b"read by read()" * 1000)),
    Case("pipe", chunked("/pipe", b"piped ", b"back")),
    Case("transform", post("/upper", b"upper case")),
    Case("an unread body", post("/unread", b"u" * 5000) + get("/hello"), ("POST", "GET")),
    Case("GET with a body", post("/describe", b"body of a GET", method="GET")),
    Case("order of events", get("/callbacks"), then=(get("/events"),)),
    Case("writes after the end", get("/after-end"), then=(get("/events"),)),
    Case("pipelined", b"".join(get(target) for target in ("/later", "/hello", "/async", "/chunks", "/json")), ("GET",) * 5),
    Case("pipelined behind a body", post("/describe", b"first") + chunked("/describe", b"second") + get("/hello"), ("POST", "POST", "GET")),
    Case("pipelined behind Connection: close", get("/hello", "Connection: close\r\n") + get("/count")),
    Case("HTTP/1.0", b"GET /hello HTTP/1.0\r\n\r\n"),
    Case(
        "HTTP/1.0, keep-alive",
        b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        differs="Node sends no Content-Length by HTTP/1.0, so it has to close the connection",
    ),
    Case("HTTP/1.0, keep-alive, without a length", b"GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    Case("HTTP/1.0 with a body", b"POST /describe HTTP/1.0\r\nContent-Length: 4\r\n\r\nbody", ("POST",)),
    Case("Connection: close", get("/hello", "Connection: close\r\n")),
    Case("Connection: Keep-Alive, Upgrade", get("/hello", "Connection: Keep-Alive, Upgrade\r\nUpgrade: websocket\r\n")),
    Case("Expect", get("/describe", "Expect: 100-continue\r\nContent-Length: 4\r\n", "POST") + b"body", ("POST",)),
    Case("a response is destroyed", get("/destroy")),
    Case("a response is destroyed late", get("/destroy-late")),
    Case(
        "unknown method", b"FROBNICATE /hello HTTP/1.1\r\nHost: test\r\n\r\n", differs="it is not implemented (501), and not a bad request"
    ),
    Case("no Host", b"GET /hello HTTP/1.1\r\n\r\n", differs="all refusals are alike, without a date"),
    Case("no request", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    Case("two listeners", get("/"), port=1),
    Case(
        "a limit of requests",
        get("/"),
        then=(get("/"), get("/")),
        port=1,
        differs="the connection ends, as the last response announces; Node answers a further request with 503",
    ),
    Case("checkContinue", get("/", "Expect: 100-continue\r\nContent-Length: 4\r\n", "POST") + b"body", ("POST",), port=1),
    Case("checkContinue refuses", get("/refuses", "Expect: 100-continue\r\nContent-Length: 4\r\n", "POST"), ("POST",), port=1),
    Case("clientError", b"GET / HTTP/1.1\r\nHost: test\r\nBad Name: 1\r\n\r\n", port=1),
    Case("maxHeaderSize", get("/", f"X-Long: {'l' * 5000}\r\n"), port=1),
]


def answers(server: AnyWebServer, case: Case) -> list[object]:
    """Sends the case's bytes on a connection of its own. Returns a description of each response, and of the connection afterwards."""
    seen: list[object] = []
    with server.connect(case.port, 20) as wire:
        try:
            wire.send(case.sent)
            for method in case.methods:
                seen.append(described(wire.reply(method)))
            for request in case.then:
                wire.send(request)
                seen.append(described(wire.reply()))
            seen.append("the connection serves on" if serves_on(wire) else "the connection is closed")
        except Closed:
            seen.append("the connection is closed within a response")
        except TimeoutError:
            seen.append("no answer in time")
    return seen


def serves_on(wire: HttpWire) -> bool:
    try:
        wire.send(get("/hello"))
        wire.reply()
        return True
    except Closed:
        return False


def described(reply: Reply) -> dict[str, object]:
    """Returns everything but the date and the order of fields."""
    fields = sorted((name, value) for name, value in reply.fields if name.lower() != "date" or value.startswith("Thu, 01 Jan 1970"))
    return {
        "status": reply.status,
        "reason": reply.reason,
        "fields": fields,
        "has a date": bool(reply.all("date")),
        "body": reply.body,
        "trailers": reply.trailers,
        # Node writes the name Link with a capital letter, whatever the script has.
        "interim": [(status, [(name.lower(), value) for name, value in fields]) for status, fields in reply.interim],
        "until close": reply.until_close,
    }


def compared(case: Case, ours: list[object], theirs: list[object]) -> tuple[list[object], list[object]]:
    """Returns both answers for a comparison. If the script gives a response as one piece, the image states its length. Node does not, if
    the script calls writeHead, or the request is HEAD or of HTTP/1.0: then it sends one chunk, or closes. That is no difference unless
    `case.framed`."""
    if case.framed:
        return ours, theirs
    pairs = [_unframed(one, other) for one, other in zip(ours, theirs, strict=False)]
    rest = slice(len(pairs), None)
    return [one for one, _ in pairs] + ours[rest], [other for _, other in pairs] + theirs[rest]


def _unframed(ours: object, theirs: object) -> tuple[object, object]:
    if not isinstance(ours, dict) or not isinstance(theirs, dict) or ours["body"] != theirs["body"]:
        return ours, theirs
    length = next((value for name, value in ours["fields"] if name == "Content-Length"), None)
    stated = any(name == "Content-Length" for name, _ in theirs["fields"])
    if length is None or stated or (ours["body"] and int(length) != len(ours["body"])):
        return ours, theirs
    framing = {"until close": False}
    return (
        {**ours, **framing, "fields": [field for field in ours["fields"] if field[0] != "Content-Length"]},
        {**theirs, **framing, "fields": [field for field in theirs["fields"] if field != ("Transfer-Encoding", "chunked")]},
    )
