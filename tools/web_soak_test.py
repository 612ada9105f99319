# SPDX-License-Identifier: BSL-1.0
"""`./neap soak web`: its damaged bytes repeat, its clients find wrong answers, and its threads end."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tools import testing, web_damage, web_soak
from tools.errors import UsageError

web_soak.find_tests()
from http_wire import HttpWire  # noqa: E402

REQUESTS = [b"GET /hello HTTP/1.1\r\nHost: test\r\n\r\n", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody"]


def reply(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class FakeServer:
    """Answers each connection by `serve`, in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._serve = serve
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve_one, args=self._listener.accept()[:1], daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            self._serve(connection)

    def connect(self, _port: int = 0, seconds: float = 10) -> HttpWire:
        return HttpWire(self._listener.getsockname(), min(seconds, 10))

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def serving() -> Iterator[Callable[[Callable[[socket.socket], None]], FakeServer]]:
    made: list[FakeServer] = []

    def make(serve: Callable[[socket.socket], None]) -> FakeServer:
        made.append(FakeServer(serve))
        return made[-1]

    yield make
    for server in made:
        server.close()


def echoing(change: Callable[[bytes], bytes] = lambda body: body) -> Callable[[socket.socket], None]:
    """A server that gives the right answers to `ask`, with their bodies changed by `change`."""

    def serve(connection: socket.socket) -> None:
        with connection.makefile("rb") as reader:
            while line := reader.readline():
                target, length = line.split()[1], 0
                while (field := reader.readline()) != b"\r\n":
                    if field.startswith(b"Content-Length:"):
                        length = int(field.split()[1])
                body = reader.read(length)
                path, _, query = target.partition(b"?")
                connection.sendall(reply(change({b"/number": query, b"/echo": body}.get(path, b"one two three"))))

    return serve


def run_for(part: Callable[[threading.Event], None], tally: web_soak.Tally, seconds: float = 0.5) -> None:
    with web_soak.Parts(tally) as parts:
        parts.add("part", part)
        time.sleep(seconds)


# ---- damage ----


def test_damage_repeats_with_its_seed_and_differs_from_the_requests() -> None:
    first, again = ([web_damage.stream(random.Random(seed), REQUESTS) for seed in range(300)] for _ in range(2))
    assert first == again and len(set(first)) > 200
    assert max(map(len, first)) <= web_damage.STREAM_BYTES_MAX
    whole = {b"".join(random.Random(0).choices(REQUESTS, k=1))}
    assert any(stream not in whole and stream not in REQUESTS for stream in first)


def test_pieces_are_the_stream() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        data = web_damage.stream(chance, REQUESTS)
        assert b"".join(web_damage.pieces(chance, data)) == data


def test_each_change_changes_the_bytes() -> None:
    for change in web_damage.CHANGES:
        results = set()
        for seed in range(50):
            data = bytearray(REQUESTS[0])
            change(random.Random(seed), data)
            results.add(bytes(data))
        assert len(results) > 10, change


def test_the_corpus_has_valid_and_hostile_requests_and_no_expensive_route() -> None:
    requests = web_soak.corpus()
    assert len(set(requests)) > 60
    assert not any(b"7d1f" in request for request in requests)


# ---- clients ----


def test_right_answers_are_no_finding(serving) -> None:
    tally = web_soak.Tally()
    run_for(lambda stop: web_soak.check_answers(serving(echoing()), tally, stop, random.Random(1)), tally)
    assert not tally.findings and tally.counts["checks"] > 0


def test_a_wrong_answer_is_a_finding(serving) -> None:
    tally = web_soak.Tally()
    wrong = echoing(lambda body: body.replace(b"two", b"TWO"))
    run_for(lambda stop: web_soak.check_answers(serving(wrong), tally, stop, random.Random(1)), tally)
    assert any("wrong answer: 200 b'one TWO three'" in finding for finding in tally.findings)


def test_the_crowd_gets_its_own_answers(serving) -> None:
    tally, mixed = web_soak.Tally(), web_soak.Tally()
    run_for(lambda stop: web_soak.crowd(serving(echoing()), tally, stop, 30), tally)
    assert not tally.findings and tally.counts["connections of the crowd"] == 30
    run_for(lambda stop: web_soak.crowd(serving(echoing(lambda _body: b"7")), mixed, stop, 30), mixed)
    assert mixed.findings


def test_damage_counts_bytes_and_responses(serving) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(reply(b"", b"400 Bad Request"))

    tally = web_soak.Tally()
    run_for(lambda stop: web_soak.send_damage(serving(refuse), tally, stop, random.Random(1), REQUESTS), tally)
    assert not tally.findings
    assert tally.damaged_bytes > 0 and tally.counts["damaged streams"] > 0 and tally.counts["first response 400"] > 0


def test_an_answer_that_is_no_response_is_a_finding(serving) -> None:
    def babble(connection: socket.socket) -> None:
        connection.sendall(b"\0\0 not HTTP")
        while connection.recv(1 << 16):
            pass

    tally = web_soak.Tally()
    run_for(lambda stop: web_soak.send_damage(serving(babble), tally, stop, random.Random(1), REQUESTS), tally)
    assert any("no response" in finding for finding in tally.findings)


def test_a_connection_that_does_not_end_is_a_finding(serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_soak, "ANSWER_SECONDS", 0.3)
    end = threading.Event()
    tally = web_soak.Tally()
    run_for(lambda stop: web_soak.send_damage(serving(lambda _c: end.wait(20)), tally, stop, random.Random(1), REQUESTS), tally, 1.5)
    end.set()
    assert any("does not end" in finding for finding in tally.findings)


# ---- the frame ----


def test_all_threads_end_if_the_main_part_fails(serving) -> None:
    before = set(threading.enumerate())
    tally = web_soak.Tally()
    started = []

    def part(stop: threading.Event) -> None:
        started.append(threading.current_thread())
        stop.wait(60)

    with pytest.raises(ZeroDivisionError), web_soak.Parts(tally) as parts:
        for name in "abc":
            parts.add(name, part)
        raise ZeroDivisionError
    assert len(started) == 3 and not any(thread.is_alive() for thread in started)
    assert not set(threading.enumerate()) - before and not tally.findings


def test_a_part_that_fails_or_does_not_end_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_soak, "ANSWER_SECONDS", 0.1)
    tally = web_soak.Tally()
    hang = threading.Event()

    def fail(_stop: threading.Event) -> None:
        raise OSError("no route")

    with web_soak.Parts(tally) as parts:
        parts.add("failing", fail)
        parts.add("hanging", lambda _stop: hang.wait(20))
        time.sleep(0.1)
    hang.set()
    assert "failing: OSError: no route" in tally.findings and "the part hanging does not end" in tally.findings


def test_a_counter_above_its_bound_is_a_finding_and_the_table_has_its_peak() -> None:
    tally = web_soak.Tally()
    for value in (5, 9, 3):
        tally.peak("webserver.exchanges.alive", value, 9)
    assert not tally.findings
    tally.peak("webserver.exchanges.alive", 10, 9)
    assert tally.findings == ["webserver.exchanges.alive is 10, more than 9"]
    lines = [line.split() for line in web_soak.report(tally, {"webserver.requests": 7, "net.other": 3})]
    assert ["webserver.exchanges.alive", "10", "of", "9", "at", "most"] in lines and ["webserver.requests", "7"] in lines
    assert lines[-1] == ["findings", "1"] and ["net.other", "3"] not in lines


def test_what_stays_at_the_end_is_a_finding() -> None:
    level = dict.fromkeys((*web_soak.ALIVE, "memory.heap_used_bytes"), 0)
    assert web_soak.left(level, level | {"memory.heap_used_bytes": web_soak.LEFT_HEAP_BYTES_MAX}) == []
    assert web_soak.left(level, level | {"memory.heap_used_bytes": web_soak.LEFT_HEAP_BYTES_MAX + 1})
    for name in web_soak.ALIVE:
        assert web_soak.left(level, level | {name: 1}) == [f"{name} is 1 at the end, not 0"]


def test_it_is_a_soak_of_its_own_with_bytes_or_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_soak, "soak", lambda minutes, count: (minutes, count))
    assert testing.soak(["web"]) == (None, None)
    assert testing.soak(["web"], minutes=3) == (3, None) and testing.soak(["web"], count=9) == (None, 9)
    with pytest.raises(UsageError, match="--cores belongs to"):
        testing.soak(["web"], cores=2)


def test_bounds() -> None:
    with pytest.raises(UsageError, match="--bytes takes"):
        web_soak.soak(count=0)
    with pytest.raises(UsageError, match="--minutes takes"):
        web_soak.soak(minutes=0)
