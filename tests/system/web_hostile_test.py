# SPDX-License-Identifier: BSL-1.0
"""Hostile clients and faulty scripts against the web server on four cores. docs/threat-model.md has the bounds.

After each test the server must serve new connections, its counters must tell of no request or response that is still alive, and its memory
must have returned. Tests that Node can pass, too, run with Node by `--stock`.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from http_wire import Closed, HttpWire
from web_requests import get, post
from web_server import SCRIPTS, AnyWebServer, NodeServer, WebServer
from web_smuggling import LIMITS, SECOND, SMUGGLING, Refused

image_only = pytest.mark.image_only

CORES = 4
MEBIBYTE = 1 << 20
SCRIPT_MEMORY, OUTPUT_MEMORY = 32 * MEBIBYTE, 8 * MEBIBYTE
# The host's two cores emulate four, so an ordinary turn may take long.
WORDS = (f"js_memory={SCRIPT_MEMORY >> 20}M", f"output_memory={OUTPUT_MEMORY >> 20}M", "js_time=2500ms")
HURRIED, SMALL, OTHER = 1, 2, 3
PORTS = 4
CROWD = 1000
KEPT_MAX = 1000
SMALL_BUFFER = 16384
SOON_SECONDS = 1.0
# Of a core: free lists, the engine's blocks, the collector's step (1 MiB).
SLACK_BYTES = CORES * 3 * MEBIBYTE


@pytest.fixture(scope="module")
def _four_cores(stock: bool) -> Iterator[AnyWebServer]:
    script = SCRIPTS / "hostile.js"
    with NodeServer(script, ports=PORTS) if stock else WebServer(script, ports=PORTS, words=WORDS) as server:
        for at in range(4 * CORES):
            with server.connect() as wire:
                wire.get(f"/number?n={at}")
        yield server


@pytest.fixture
def server(_four_cores: AnyWebServer) -> Iterator[AnyWebServer]:
    """The server on four cores. It must serve after each test, hold nothing for a client, and use as much memory as before."""
    image = _four_cores if isinstance(_four_cores, WebServer) else None
    before = image.counters() if image else {}
    yield _four_cores
    _four_cores.check()
    if image:
        if kept(before, image.settled(lambda counters: not kept(before, counters), SOON_SECONDS)):
            # A response in a cycle of garbage, such as a listener that names it, lives until its core collects.
            on_all_cores(image, "/release")
        after = image.settled(lambda counters: not kept(before, counters))
        assert not kept(before, after), "memory or connections have not returned"


def kept(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Returns the counters that have not returned."""
    allowed = {
        "webserver.exchanges.alive": 0,
        "webserver.timers_pending": 0,
        "webserver.messages_kept": 0,
        "net.connections_open": 2,
        "memory.heap_used_bytes": SLACK_BYTES,
        "webserver.script_memory_bytes": SLACK_BYTES,
    }
    return {name: (before[name], after[name]) for name, more in allowed.items() if after[name] > before[name] + more}


@contextlib.contextmanager
def counted(server: AnyWebServer, least: dict[str, int]) -> Iterator[None]:
    """Checks that counters of the web server grow by these numbers at least."""
    if not isinstance(server, WebServer):
        yield
        return
    before = server.counters()
    yield

    def grown(after: dict[str, int]) -> dict[str, int]:
        return {name: after[f"webserver.{name}"] - before[f"webserver.{name}"] for name in least}

    after = server.settled(lambda counters: all(grown(counters)[name] >= count for name, count in least.items()))
    short = {name: (count, grown(after)[name]) for name, count in least.items() if grown(after)[name] < count}
    assert not short, f"counters, wanted and got: {short}"


def answered(server: AnyWebServer, target: str, *, body: bytes | None = None, port: int = 0) -> int:
    """Returns the status of the answer to a request on a connection of its own; 0 if the connection ends without a whole response."""
    with server.connect(port) as wire:
        try:
            return (wire.get(target) if body is None else wire.post(target, body)).status
        except Closed:
            return 0


def on_all_cores(server: AnyWebServer, target: str) -> list[bytes]:
    """Sends a request to all cores, each of which answers with a text of its own. Returns the texts."""
    wanted = CORES if isinstance(server, WebServer) else 1
    seen: set[bytes] = set()
    for _ in range(200):
        with server.connect() as wire:
            seen.add(wire.get(target).body)
        if len(seen) == wanted:
            return sorted(seen)
    raise AssertionError(f"only {len(seen)} of {wanted} cores have answered")


# ---- requests that are refused ----


def refuse(server: AnyWebServer, case: Refused) -> None:
    status = case.status if isinstance(server, WebServer) else case.node_status
    with server.connect() as wire:
        try:
            wire.send(case.sent + SECOND)
            reply = wire.reply()
        except Closed:
            # The response may be lost, because the server ends a connection whose bytes it has not read.
            assert status == 0 or len(case.sent) > 16_000, "closed without a response"
            return
        assert reply.status == status, reply
        if status >= 400 and isinstance(server, WebServer):
            assert reply.closes, "a refusal must announce the end of the connection"
            assert wire.closed(), "the hidden request was read"


@pytest.mark.parametrize("case", SMUGGLING, ids=lambda case: case.name)
def test_a_request_that_can_be_read_in_two_ways_is_refused(_four_cores: AnyWebServer, case: Refused) -> None:
    refuse(_four_cores, case)


@pytest.mark.parametrize("case", LIMITS, ids=lambda case: case.name)
def test_a_request_beyond_a_limit_is_refused(_four_cores: AnyWebServer, case: Refused) -> None:
    refuse(_four_cores, case)


@image_only
def test_refusals_are_counted_and_others_are_served(server: AnyWebServer) -> None:
    cases = [*SMUGGLING, *LIMITS]
    of = {status: sum(case.status == status for case in cases) for status in (400, 413, 414, 417, 431, 501, 505)}
    with server.connect() as bystander, counted(server, {f"requests.refused_{status}": count for status, count in of.items()}):
        for case in cases:
            refuse(server, case)
            assert bystander.get("/hello").body == b"hello\n"


# ---- slow clients ----


def test_a_slow_head_is_ended_with_408(server: AnyWebServer) -> None:
    with counted(server, {"timeouts.head": 2}), server.connect(HURRIED) as slow, server.connect(HURRIED) as slower:
        slow.send(b"GET / HTTP/1.1\r\nHost:")
        slower.send(b"G")
        for wire in (slow, slower):
            assert wire.reply().status == 408
            assert wire.closed()


def test_bytes_now_and_then_do_not_extend_the_time_for_a_head(server: AnyWebServer) -> None:
    with server.connect(HURRIED) as wire, ThreadPoolExecutor(1) as pool:
        wire.send(b"GET / HTTP/1.1\r\nHost: test\r\n")
        answer = pool.submit(wire.reply)
        with contextlib.suppress(Closed):
            while not answer.done():
                wire.send(b"X-Slow: 1\r\n")
                time.sleep(0.1)
        assert answer.result().status == 408


def test_a_slow_body_is_ended_with_408(server: AnyWebServer) -> None:
    with counted(server, {"timeouts.request": 1}), server.connect(HURRIED) as wire:
        wire.send(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nslow")
        assert wire.reply().status == 408
        assert wire.closed()


def test_an_idle_connection_is_closed_without_a_response(server: AnyWebServer) -> None:
    with counted(server, {"connections.idle_closed": 1}), server.connect(HURRIED) as wire:
        assert wire.get("/").body == b"in time"
        assert wire.closed()


@image_only
def test_slow_readers_of_endless_responses_hold_bounded_memory(server: WebServer) -> None:
    readers = 25
    # Of each response: the high watermark, one write beyond it, and the connection's own queue.
    each_bytes = 256 << 10
    before = server.counters()
    with contextlib.ExitStack() as stack:
        # The host's buffers would take some MiB of each response, and QEMU's network would be full of them for many seconds.
        wires = [stack.enter_context(server.connect(receive_bytes=SMALL_BUFFER)) for _ in range(readers)]
        for wire in wires:
            wire.request("GET /endless HTTP/1.1\nHost: test")
        for _ in range(4):
            grown = server.counters()["memory.heap_used_bytes"] - before["memory.heap_used_bytes"]
            assert grown <= readers * each_bytes + SLACK_BYTES
            with server.connect() as bystander:
                assert bystander.get("/hello").body == b"hello\n"
            for wire in wires[::5]:
                wire.read_exactly(100)
        for wire in wires:
            wire.reset()


@image_only
def test_large_responses_that_nobody_reads_hold_bounded_memory(server: WebServer) -> None:
    """Together they are ten times as large as the memory for responses."""
    readers, large = 100, CORES * OUTPUT_MEMORY // 10
    before = server.counters()
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(readers)]
        for wire in wires:
            wire.request(f"GET /large?bytes={large} HTTP/1.1\nHost: test")
        for _ in range(4):
            grown = server.counters()["memory.heap_used_bytes"] - before["memory.heap_used_bytes"]
            assert grown <= CORES * (SCRIPT_MEMORY + 2 * OUTPUT_MEMORY) + SLACK_BYTES
            with server.connect() as bystander:
                assert bystander.get("/hello").status in (200, 500), "500: the script's memory is full"
        for wire in wires:
            wire.reset()


def test_a_large_response_is_whole_for_a_slow_reader(server: AnyWebServer) -> None:
    with server.connect() as wire:
        wire.request("GET /large?bytes=2000000 HTTP/1.1\nHost: test")
        time.sleep(0.5)
        assert wire.reply().body == (b"large " * 333_334)[:2_000_000]


def test_a_body_is_whole_although_the_script_pauses(server: AnyWebServer) -> None:
    with server.connect() as wire:
        assert wire.post("/pauses", b"p" * 500_000).body == b"500000"
        assert wire.get("/hello").body == b"hello\n"


@image_only
def test_a_body_that_the_script_does_not_read_stays_with_the_client(server: WebServer) -> None:
    before = server.counters()
    sent = 0
    with server.connect() as wire:
        wire.request("POST /never-reads HTTP/1.1\nHost: test\nContent-Length: 100000000")
        wire._socket.setblocking(False)
        silent = 0
        while silent < 50 and sent < 50 * MEBIBYTE:
            try:
                sent += wire._socket.send(bytes(65536))
                silent = 0
            except BlockingIOError:
                silent += 1
                time.sleep(0.02)
        assert sent < 50 * MEBIBYTE, "the server reads a body that nobody wants"
        grown = server.counters()["memory.heap_used_bytes"] - before["memory.heap_used_bytes"]
        assert grown <= 2 * MEBIBYTE + SLACK_BYTES
        wire.reset()
    on_all_cores(server, "/release")


def test_a_body_behind_an_early_answer_is_discarded(server: AnyWebServer) -> None:
    with server.connect() as wire:
        assert wire.post("/answers-early", b"d" * 100_000).body == b"no"
        assert wire.get("/hello").body == b"hello\n"


# ---- scripts that fail ----


def fails(server: AnyWebServer, target: str, statuses: tuple[int, ...], body: bytes | None = None) -> None:
    """Sends the request among others: one on the same core before and after it, and others meanwhile."""
    with server.connect() as bystander, ThreadPoolExecutor(1) as pool:
        assert bystander.get("/hello").body == b"hello\n"
        answer = pool.submit(answered, server, target, body=body)
        while not answer.done():
            assert bystander.get("/number?n=1").body == b"1"
        assert answer.result() in statuses, answer.result()


@image_only
@pytest.mark.parametrize("target", ["/loop", "/loop-async", "/loop-expression", "/loop-catches"])
def test_an_endless_loop_is_answered_with_500(server: WebServer, target: str) -> None:
    with counted(server, {"handler_timeouts": 1}):
        fails(server, target, (500,))


@image_only
def test_an_endless_loop_within_a_response_resets_the_connection(server: WebServer) -> None:
    with counted(server, {"handler_timeouts": 1}):
        fails(server, "/loop-late", (0,))


@image_only
@pytest.mark.parametrize("target", ["/loop-timer", "/loop-promises"])
def test_an_endless_loop_beside_a_response_is_ended(server: WebServer, target: str) -> None:
    with counted(server, {"turns_timed_out": 1}):
        fails(server, target, (200, 500, 0))


@image_only
@pytest.mark.parametrize("target", ["/throw", "/throw-nothing", "/throw-getter", "/throw-async", "/recurse", "/recurse-json", "/exit"])
def test_an_error_of_a_handler_is_answered_with_500(server: WebServer, target: str) -> None:
    with counted(server, {"handler_errors": 1}):
        fails(server, target, (500,))


@image_only
def test_an_expression_that_nests_too_deep_ends_neither_the_engine_nor_the_machine(server: WebServer) -> None:
    fails(server, "/recurse-expression", (500, 200))


@image_only
@pytest.mark.parametrize("target", ["/throw-data", "/throw-end"])
def test_an_error_of_a_callback_of_the_body_is_answered_with_500(server: WebServer, target: str) -> None:
    with counted(server, {"handler_errors": 1}):
        fails(server, target, (500,), b"body")


@image_only
def test_an_error_within_a_response_resets_the_connection(server: WebServer) -> None:
    with counted(server, {"handler_errors": 1}):
        fails(server, "/throw-late", (0,))


@image_only
@pytest.mark.parametrize(("target", "counter"), [("/throw-timer", "exceptions"), ("/reject", "unhandled_rejections")])
def test_an_error_without_a_request_is_counted(server: WebServer, target: str, counter: str) -> None:
    with counted(server, {counter: 1}):
        fails(server, target, (200,))


@image_only
@pytest.mark.parametrize("target", ["/allocate-bytes", "/allocate-objects", "/allocate-text"])
def test_an_allocation_without_end_is_answered_with_500(server: WebServer, target: str) -> None:
    before = server.counters()
    fails(server, target, (500,))
    after = server.counters()
    ends = ("webserver.handler_no_memory", "webserver.handler_timeouts", "webserver.handler_errors")
    assert sum(after[name] - before[name] for name in ends) >= 1


@image_only
def test_a_response_without_end_in_one_turn_is_ended(server: WebServer) -> None:
    fails(server, "/allocate-response", (500, 0))


@image_only
def test_cycles_of_garbage_are_collected(server: WebServer) -> None:
    with counted(server, {"collections": 1}), server.connect() as wire:
        for _ in range(40):
            assert wire.get("/cycles").body == b"cycles"


@image_only
def test_a_flood_of_timers_has_an_end(server: WebServer) -> None:
    with counted(server, {"timers_fired": 1000}):
        fails(server, "/timers", (200, 500))


@image_only
def test_a_flood_of_lines_for_the_console_is_cut(server: WebServer) -> None:
    with counted(server, {"console_bytes_dropped": 100_000}):
        fails(server, "/print", (200,))


@image_only
def test_a_script_that_keeps_all_requests_keeps_the_bytes_of_some(server: WebServer) -> None:
    count = 1500
    with counted(server, {"messages_copied": count - KEPT_MAX}), server.connect() as wire:
        for first in range(0, count, 100):
            wire.send(get("/keep") * 100)
            assert [int(wire.reply().body) for _ in range(100)] == list(range(2 * first + 2, 2 * first + 202, 2))
    on_all_cores(server, "/release")


@image_only
def test_a_hundred_servers_of_one_script(server: WebServer) -> None:
    """A script may open ports while it runs; what it cannot have is refused, with an error that it can handle."""
    with server.connect() as wire:
        reply = wire.get("/many-servers")
        assert reply.status == 200 and 0 <= json.loads(reply.body)["opened"] <= 100


def test_each_port_has_its_own_server(server: AnyWebServer) -> None:
    for _ in range(4):
        with server.connect(OTHER) as wire, server.connect(SMALL) as other:
            assert wire.get("/hello").body == b"3" and other.get("/hello").body == b"room"


# ---- connections ----


@image_only
def test_a_thousand_clients_are_served_beside_an_endless_loop(server: WebServer) -> None:
    """The clients on the loop's core wait for the watchdog, no other clients do. One client gets 500, all others their answer."""
    looping = CROWD // 2
    before = server.counters()
    with contextlib.ExitStack() as stack, counted(server, {"handler_timeouts": 1}):
        wires = []
        for at in range(CROWD):
            # Each is used at once: a connection without a request is closed after a minute, and a slow host may need that for all of them.
            wires.append(stack.enter_context(server.connect()))
            assert wires[-1].get(f"/number?n={at}").body == b"%d" % at
        for at, wire in enumerate(wires):
            wire.send(get("/loop" if at == looping else f"/number?n={at}"))
        replies = [status_and_body(wire) for wire in wires]
        wrong = {at: reply for at, reply in enumerate(replies) if at != looping and reply != (200, b"%d" % at)}
        if replies[looping][0] != 500 or wrong:
            changed = {name: value - before.get(name, 0) for name, value in server.counters().items() if value != before.get(name, 0)}
            pytest.fail(f"the loop's client got {replies[looping]}, and wrong are {wrong}; the server has counted {changed}")


def status_and_body(wire: HttpWire) -> tuple[int, bytes]:
    """Returns the status and the body of the next response; 0 and the reason if the connection ends before it."""
    try:
        reply = wire.reply()
    except Closed as error:
        return 0, str(error).encode()
    return reply.status, reply.body


def test_connections_beyond_a_server_s_limit_are_turned_away(server: AnyWebServer) -> None:
    count = 100
    with contextlib.ExitStack() as stack, counted(server, {"connections.refused": 1}):
        outcomes = []
        wires = [stack.enter_context(server.connect(SMALL)) for _ in range(count)]
        for wire in wires:
            try:
                wire.send(get("/"))
                outcomes.append(wire.reply().status)
            except Closed:
                outcomes.append(0)
        assert 1 <= outcomes.count(200) <= 10 * CORES
        assert set(outcomes) <= {200, 503, 0} and len(set(outcomes)) > 1
        # A place that a client leaves is free for another one.
        for wire in wires:
            wire.close()
    if isinstance(server, WebServer):
        server.settled(lambda counters: counters["net.connections_open"] <= 2)
    assert answered(server, "/", port=SMALL) in (200, 0 if not isinstance(server, WebServer) else 200)


def test_a_client_that_has_ended_its_side_gets_its_answers(server: AnyWebServer) -> None:
    with server.connect() as wire:
        wire.send(get("/number?n=1") + get("/number?n=2"))
        wire.end_sending()
        assert [wire.reply().body, wire.reply().body] == [b"1", b"2"]
        assert wire.closed()


@pytest.mark.parametrize("sent", [b"GET /hello HT", b"GET /hello HTTP/1.1\r\nHost: te", post("/length", b"whole")[:-2]])
def test_a_client_that_ends_its_side_within_a_request_gets_no_200(server: AnyWebServer, sent: bytes) -> None:
    with server.connect() as wire:
        wire.send(sent)
        wire.end_sending()
        with contextlib.suppress(Closed):
            assert wire.reply().status == 400
            assert wire.closed()


def test_resets_in_the_middle_leave_nothing(server: AnyWebServer) -> None:
    beginnings = [
        b"",
        b"GET /hello HT",
        get("/hello"),
        get("/never-answers"),
        get("/endless"),
        get("/large?bytes=1000000"),
        post("/length", b"l" * 5000)[:-100],
        get("/hello") * 200,
        b"POST /length HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort",
    ]
    for at in range(12 * len(beginnings)):
        with server.connect() as wire:
            wire.send(beginnings[at % len(beginnings)])
            if at % 2:
                time.sleep(0.01)
            wire.reset()
    ended = {"aborted": 0, "closed": 0}
    for text in on_all_cores(server, "/ended"):
        one = json.loads(text)
        ended = {name: count + one[name] for name, count in ended.items()}
    assert ended["closed"] >= 1, "the script was not told of a client's end"


def test_a_thousand_pipelined_requests(server: AnyWebServer) -> None:
    with server.connect() as wire, server.connect() as other, counted(server, {"requests.total": 1000}):
        wire.send(b"".join(get(f"/number?n={at}") for at in range(1000)))
        assert other.get("/hello").body == b"hello\n"
        assert [wire.reply().body for _ in range(1000)] == [b"%d" % at for at in range(1000)]


def test_a_client_that_pipelines_and_does_not_read(server: AnyWebServer) -> None:
    """The server stops reading from it. Others are served meanwhile, and the client gets all answers when it reads."""
    count = 3000
    with server.connect() as wire, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(wire.send, get("/large?bytes=2000") * count)
        time.sleep(0.3)
        with server.connect() as other:
            assert other.get("/hello").body == b"hello\n"
        body = (b"large " * 334)[:2000]
        for _ in range(count):
            assert wire.reply().body == body
        sending.result()


# ---- the tests themselves ----


def test_memory_that_does_not_return_is_found() -> None:
    names = (
        "webserver.exchanges.alive webserver.timers_pending webserver.messages_kept net.connections_open memory.heap_used_bytes "
        "webserver.script_memory_bytes"
    ).split()
    level = dict.fromkeys(names, 10)
    assert kept(level, level) == {}
    for name in names:
        assert set(kept(level, level | {name: 11 + SLACK_BYTES})) == {name}


def test_a_hidden_request_that_is_served_is_found() -> None:
    """Node serves both requests, and the helper must see that."""
    with NodeServer(SCRIPTS / "hostile.js", ports=PORTS) as node, node.connect() as wire:
        wire.send(get("/hello") + SECOND)
        assert wire.reply().status == 200
        with pytest.raises(AssertionError, match="bytes after the last response"):
            wire.closed()
