# SPDX-License-Identifier: BSL-1.0
"""Strangers' clients and frameworks against the web server on four cores: curl, wrk, autocannon, Hono, Koa, find-my-way.

Node serves the same scripts in the same test, and must give the same answers (web_requests.py has the table). So a wrong expectation
fails, too.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from http_wire import HttpWire
from web_requests import CASES, Case, answers, chunked, compared, get, post
from web_server import SCRIPTS, AnyWebServer, NodeServer, WebServer

from tools import client_programs
from tools.process import finished

PROGRAM_SECONDS = 120
MEBIBYTE = 1 << 20
WEB_CLIENTS = client_programs.CLIENTS / "web"
APPS = Path(__file__).with_name("web_apps")
SERVERS_OF_SCRIPT = 2


@pytest.fixture(scope="module")
def node() -> Iterator[NodeServer]:
    with NodeServer(SCRIPTS / "semantics.js", ports=SERVERS_OF_SCRIPT) as server:
        yield server


@pytest.fixture(scope="module")
def _four_cores(stock: bool) -> Iterator[AnyWebServer]:
    script = SCRIPTS / "semantics.js"
    with NodeServer(script, ports=SERVERS_OF_SCRIPT) if stock else WebServer(script, ports=SERVERS_OF_SCRIPT) as server:
        yield server


@pytest.fixture
def server(_four_cores: AnyWebServer) -> Iterator[AnyWebServer]:
    """The server on four cores. It must still serve after each test."""
    yield _four_cores
    _four_cores.check()


# ---- Node's interface ----


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_is_node_s(server: AnyWebServer, node: NodeServer, case: Case) -> None:
    ours, theirs = compared(case, answers(server, case), answers(node, case))
    if case.differs and not isinstance(server, NodeServer):
        assert ours != theirs, f"the answers are equal, although {case.differs}"
    else:
        assert ours == theirs


def test_a_difference_is_found(node: NodeServer) -> None:
    """The comparison must not pass for two servers of different behaviour."""
    first, second = Case("a", get("/count")), Case("b", get("/hello", "Connection: close\r\n"))
    assert answers(node, first) != answers(node, first), "the count is another one"
    assert answers(node, second)[-1] == "the connection is closed"
    one_piece, one_chunk = answers(node, Case("c", get("/unicode"))), answers(node, Case("d", get("/json")))
    for framed in (Case("e", b"", framed=True), Case("f", b"")):
        ours, theirs = compared(framed, one_piece, one_chunk)
        assert ours != theirs, "another body"


# ---- curl ----


def curl(*arguments: str, data: bytes | None = None) -> bytes:
    """Returns the output of curl. A failure of curl fails the test."""
    argv = [client_programs.program("curl"), "--silent", "--show-error", "--max-time", str(PROGRAM_SECONDS), *arguments]
    done = finished(argv, PROGRAM_SECONDS + 10, text=False, errors=None, **({} if data is None else {"stdin": None, "input": data}))
    assert done.returncode == 0, f"curl: {done.returncode}: {done.stderr.decode()}"
    return done.stdout + done.stderr


def test_curl_gets(server: AnyWebServer) -> None:
    head, _, body = curl("--include", f"{server.url}/hello").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n") and body == b"hello\n"
    assert re.search(rb"^Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r$", head, re.MULTILINE), head


def test_curl_asks_for_the_head_alone(server: AnyWebServer) -> None:
    answer = curl("--head", f"{server.url}/content-length")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and b"Content-Length: 9\r\n" in answer and answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("options", [(), ("--header", "Transfer-Encoding: chunked")], ids=["length", "chunked"])
@pytest.mark.parametrize("count", [0, 1, 70_000, MEBIBYTE])
def test_curl_uploads_and_gets_the_same_bytes(server: AnyWebServer, options: tuple[str, ...], count: int) -> None:
    sent = bytes((at * 31 + (at >> 8)) & 255 for at in range(count))
    got = curl(*options, "--header", "Expect:", "--data-binary", "@-", f"{server.url}/echo", data=sent)
    assert got == sent


def test_curl_waits_for_100_continue(server: AnyWebServer) -> None:
    """Without the interim response, curl would not send the body before the test's time-out."""
    options = ("--verbose", "--header", "Expect: 100-continue", "--expect100-timeout", "1000", "--data-binary", "@-")
    got = curl(*options, f"{server.url}/describe", data=b"expected")
    assert b"< HTTP/1.1 100 Continue" in got and b"< HTTP/1.1 200 OK" in got
    assert b'"text":"expected"' in got


def test_curl_keeps_its_connection(server: AnyWebServer) -> None:
    urls = [f"{server.url}/{name}" for name in ("hello", "chunks", "json", "no-content", "hello")]
    got = curl("--write-out", "[%{http_code} %{num_connects}]", *urls)
    assert re.findall(rb"\[(\d+) (\d+)\]", got) == [(b"200", b"1"), (b"200", b"0"), (b"200", b"0"), (b"204", b"0"), (b"200", b"0")]


def test_curl_with_http_1_0(server: AnyWebServer) -> None:
    head, _, body = curl("--http1.0", "--include", f"{server.url}/chunks").partition(b"\r\n\r\n")
    assert body == b"one two three" and b"chunked" not in head


def test_curl_downloads_a_mebibyte(server: AnyWebServer) -> None:
    assert curl(f"{server.url}/bytes?count={MEBIBYTE}") == bytes((at * 7 + (at >> 8)) & 255 for at in range(MEBIBYTE))


def test_curl_sends_forms_queries_and_repeated_headers(server: AnyWebServer) -> None:
    got = json.loads(curl("--get", "--data-urlencode", "a=ä & b", "--data", "c=1", f"{server.url}/query"))
    assert got["pairs"] == [["a", "ä & b"], ["c", "1"]]
    options = ("--header", "X-Twice: 1", "--header", "X-Twice: 2", "--cookie", "a=1", "--user", "name:word")
    got = json.loads(curl(*options, f"{server.url}/request"))
    assert got["headers"]["x-twice"] == "1, 2" and got["headers"]["cookie"] == "a=1"
    assert got["headers"]["authorization"].startswith("Basic ") and got["distinct"]["x-twice"] == ["1", "2"]


# ---- raw connections ----


def test_a_request_may_arrive_in_single_bytes(server: AnyWebServer) -> None:
    request = chunked("/describe", b"split", b" everywhere", trailers="X-End: 1\r\n")
    with server.connect() as wire:
        wire.send_pieces((request[at : at + 1] for at in range(len(request))), 0.0005)
        assert b'"text":"split everywhere"' in wire.reply("POST").body
        assert wire.get("/hello").body == b"hello\n"


def test_pipelined_responses_are_in_order(server: AnyWebServer) -> None:
    """The first response waits for a timer, while the others are ready."""
    with server.connect() as wire:
        names = ["later", "hello", "chunks", "async", "hello", "immediate"] * 20
        wire.send(b"".join(get(f"/{name}") for name in names))
        bodies = {"later": b"later", "hello": b"hello\n", "chunks": b"one two three", "async": b'{"waited":true}', "immediate": b"soon"}
        assert [wire.reply().body for _ in names] == [bodies[name] for name in names]


def test_a_pipelined_body_is_no_request(server: AnyWebServer) -> None:
    with server.connect() as wire:
        wire.send(post("/echo", get("/hello")) + get("/count"))
        assert wire.reply("POST").body == get("/hello")
        assert wire.reply().body.isdigit()


def test_trailers_of_both_sides(server: AnyWebServer) -> None:
    with server.connect() as wire:
        wire.send(chunked("/describe", b"body", trailers="X-Sum: 4\r\nX-Late: yes\r\n"))
        assert json.loads(wire.reply("POST").body)["trailers"] == {"x-sum": "4", "x-late": "yes"}
        assert wire.get("/trailers").trailers == [("X-Sum", "4"), ("X-Late", "yes")]


def test_a_writer_that_waits_for_drain_sends_all(server: AnyWebServer) -> None:
    body = (b"drain/" * 2731)[:16384] * 64
    with server.connect() as wire:
        assert wire.get("/drain").body == body + b"waited"


# ---- wrk ----


@pytest.mark.parametrize("connections", [1, 16])
def test_wrk_gets_only_right_answers(server: AnyWebServer, connections: int) -> None:
    # QEMU's user network accepts connections slowly, so some of wrk's begin seconds later than others.
    argv = [client_programs.program("wrk"), "-c", str(connections), "-t", "1", "-d", "2", "--timeout", "60"]
    done = finished([*argv, "-s", str(WEB_CLIENTS / "check.lua"), f"{server.url}/hello", "--", "hello"], PROGRAM_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    match = re.search(r"checked: right=(\d+) wrong=(\d+) connect=(\d+) read=(\d+) write=(\d+) timeout=(\d+) status=(\d+)", done.stdout)
    assert match, done.stdout
    right, *faults = map(int, match.groups())
    assert right > 0 and not any(faults), done.stdout


# ---- autocannon ----


def autocannon(url: str, *options: str) -> dict:
    program = client_programs.npm_packages(WEB_CLIENTS) / "node_modules/autocannon/autocannon.js"
    argv = [client_programs.program("node"), str(program), "--json", "--no-progress", "--timeout", "60", *options, url]
    done = finished(argv, PROGRAM_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("target", "connections", "pipelined", "body", "options"),
    [
        ("/hello", 4, 1, "hello\n", ()),
        ("/hello", 2, 10, "hello\n", ()),
        ("/echo", 4, 1, "autocannon's body", ("--method", "POST", "--body", "autocannon's body")),
        ("/chunks", 2, 3, "one two three", ()),
    ],
)
def test_autocannon_gets_only_right_answers(
    server: AnyWebServer, target: str, connections: int, pipelined: int, body: str, options: tuple[str, ...]
) -> None:
    count = 400
    options = (*options, "--connections", str(connections), "--pipelining", str(pipelined), "--amount", str(count))
    result = autocannon(f"{server.url}{target}", "--expectBody", body, *options)
    # At the end, autocannon counts no response that is behind another one in its pipeline.
    assert count - connections * (pipelined - 1) <= result["2xx"] <= count, result
    faults = {name: result[name] for name in ("non2xx", "errors", "timeouts", "mismatches", "resets") if result[name]}
    assert not faults, result


# ---- frameworks ----


def json_post(target: str, value: object) -> bytes:
    return post(target, json.dumps(value).encode(), "Content-Type: application/json\r\n")


# For each framework: its program, the body of its hello, and requests whose answers are compared with those of Node.
FRAMEWORKS = {
    "hono.mjs": (
        b"Hono meets Node.js",
        [
            Case("hello", get("/")),
            Case("parameters", get("/users/ada?x=1&y=2")),
            Case("JSON", json_post("/echo", {"a": [1, 2, {"b": "ü"}]}), ("POST",)),
            Case("HTML", get("/html")),
            Case("redirect", get("/redirect")),
            Case("an error", get("/broken")),
            Case("no such route", get("/nowhere")),
            Case("HEAD", get("/", method="HEAD"), ("HEAD",)),
        ],
    ),
    "koa.js": (
        b"Hello from Koa",
        [
            Case("hello", get("/")),
            Case("JSON", get("/json?a=1&a=2", "Accept: application/json\r\n")),
            Case("bytes", get("/bytes")),
            Case("redirect", get("/redirect")),
            Case("an error", get("/broken")),
            Case("no body", get("/nowhere")),
            Case("HEAD", get("/bytes", method="HEAD"), ("HEAD",)),
        ],
    ),
    "find_my_way.js": (
        b"found my way",
        [
            Case("hello", get("/")),
            Case("parameters", get("/users/17")),
            Case("a parameter that does not match", get("/users/ada")),
            Case("wildcard", get("/files/a/b/c.txt")),
            Case("query", post("/users/9?a=1", b"", method="PUT"), ("PUT",)),
            Case("no such route", get("/nowhere")),
        ],
    ),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_answers_as_on_node(stock: bool, name: str) -> None:
    script = client_programs.npm_packages(APPS, with_files=True) / name
    hello, cases = FRAMEWORKS[name]

    def open_node() -> AnyWebServer:
        return NodeServer(script)

    with NodeServer(script) if stock else WebServer(script) as server, open_node() as node:

        def both(case: Case) -> tuple[list[object], list[object]]:
            return compared(case, answers(server, case), answers(node, case))

        with server.connect() as wire:
            assert wire.get("/").body == hello
        with ThreadPoolExecutor(1) as pool:
            pairs = list(pool.map(both, cases))
        for case, (ours, theirs) in zip(cases, pairs, strict=True):
            assert ours == theirs, case.name
        server.check()


def test_the_reader_of_responses_is_strict(node: NodeServer) -> None:
    """A reader that accepts anything would hide faults of the server."""
    import socket
    import threading

    for wrong in (b"HTTP/1.1 200 OK\r\nBad Name: 1\r\n\r\n", b"HTTP/1.1 200 OK\nA: 1\r\n\r\n", b"HTTP/1.1 20 OK\r\n\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            sender = threading.Thread(target=lambda data=wrong, at=listener: at.accept()[0].sendall(data), daemon=True)
            sender.start()
            with HttpWire(listener.getsockname()) as wire, pytest.raises(AssertionError):
                wire.reply()
            sender.join()
