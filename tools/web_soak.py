# SPDX-License-Identifier: BSL-1.0
"""`./neap soak web`: the web server on four cores under a thousand connections, slow clients, endless loops and damaged bytes of HTTP.

All parts run at the same time against one machine:

  checks     an ordinary client, on old and new connections: each answer must be right
  damage     workers send damaged streams (tools/web_damage.py): responses must begin as such, and each connection must end
  crowd      CROWD open connections, each of which asks now and then and must get its own answer
  readers    clients of an endless response that read some bytes a second
  senders    clients that send a few bytes a second; the server ends them with 408
  failures   an endless loop, an allocation without end, and an error of a handler, now and then: each is answered with 500
  samples    control's counters: those with a bound must be within it at every sample

A first round of WARM_UP_SECONDS fills free lists. At the end nothing may be alive, and the heap must be as after that round. The soak ends
after --bytes damaged bytes (10^8), or after --minutes.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from tools import build, packages, progress, qemu, run, web_damage
from tools.errors import EXIT_FAILURE, UsageError

if TYPE_CHECKING:
    from http_wire import HttpWire
    from web_server import AnyWebServer, WebServer

CORES = 4
BYTES, BYTES_MAX = 100_000_000, 10**12
MINUTES_MAX = 100_000
CROWD = 1000
# On new connections, so that each of the four cores gets some.
COLLECTING_REQUESTS = 40
READERS, SENDERS, DAMAGERS = 20, 20, 4
SCRIPT_MEMORY, OUTPUT_MEMORY = 32 << 20, 16 << 20
WORDS = (f"js_memory={SCRIPT_MEMORY >> 20}M", f"output_memory={OUTPUT_MEMORY >> 20}M", "js_time=1s")
WARM_UP_SECONDS = 15.0
ANSWER_SECONDS = 120.0
PAUSE_SECONDS = 0.05
FAILURE_PAUSE_SECONDS = 3.0
SAMPLE_SECONDS = 1.0
SHOW_SECONDS = 60.0
LEFT_HEAP_BYTES_MAX = 12 << 20
FINDINGS_MAX = 20
STATUS = re.compile(rb"HTTP/1\.1 (100|200|400|404|405|408|413|414|417|431|500|501|503|505) ")
# Counters that MUST NOT be above a bound at any sample, and those that MUST be back at the end.
KEPT_MESSAGES_MAX = CORES * 1000
ALIVE = ("webserver.exchanges.alive", "webserver.messages_kept", "net.half_open")


class Tally:
    """The counts and findings of all parts. For many threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.counts: collections.Counter[str] = collections.Counter()
        self.peaks: dict[str, tuple[int, int]] = {}
        self.findings: list[str] = []
        self.damaged_bytes = 0

    def count(self, name: str, number: int = 1) -> None:
        with self._guard:
            self.counts[name] += number

    def damage(self, number: int) -> None:
        with self._guard:
            self.damaged_bytes += number

    def find(self, text: str) -> None:
        with self._guard:
            self.findings.append(text)
        if len(self.findings) <= FINDINGS_MAX:
            print(f"neap: soak: web: FINDING: {text}", flush=True)

    def peak(self, name: str, value: int, bound: int) -> None:
        with self._guard:
            self.peaks[name] = (max(value, self.peaks.get(name, (0, 0))[0]), bound)
        if value > bound:
            self.find(f"{name} is {value}, more than {bound}")


class Parts:
    """The parts as threads, which end with the `with` block: a stop event, daemon threads, and a join of each."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        deadline = time.monotonic() + ANSWER_SECONDS
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
            if thread.is_alive():
                self._tally.find(f"the part {thread.name} does not end")

    def add(self, name: str, part: Callable[[threading.Event], None]) -> None:
        def guarded() -> None:
            try:
                part(self.stop)
            except Exception as error:  # a part that fails is a finding, and the others go on
                if not self.stop.is_set():
                    self._tally.find(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()


# --- The clients -------------------------------------------------------------------------------------------------------------------------
def check_answers(server: AnyWebServer, tally: Tally, stop: threading.Event, chance: random.Random) -> None:
    """Asks on one connection that stays open, and on a new one each time."""
    with server.connect(seconds=ANSWER_SECONDS) as old:
        while not stop.wait(PAUSE_SECONDS):
            with server.connect(seconds=ANSWER_SECONDS) as new:
                for wire in (old, new):
                    ask(wire, tally, chance.randrange(1 << 30))
                    tally.count("checks")


def ask(wire: HttpWire, tally: Tally, number: int) -> None:
    """Sends three requests in a row, and compares their answers."""
    body = b"%d" % number * (number % 500)
    wire.request(f"GET /number?{number} HTTP/1.1\nHost: test")
    wire.request(f"POST /echo HTTP/1.1\nHost: test\nContent-Length: {len(body)}", body)
    wire.request("GET /chunks HTTP/1.1\nHost: test")
    for wanted in (b"%d" % number, body, b"one two three"):
        reply = wire.reply()
        if (reply.status, reply.body) != (200, wanted):
            tally.find(f"wrong answer: {reply.status} {reply.body[:100]!r} in place of {wanted[:100]!r}")


def crowd(server: AnyWebServer, tally: Tally, stop: threading.Event, count: int) -> None:
    with contextlib.ExitStack() as stack:
        wires = []
        for _ in range(count):
            if stop.is_set():
                return
            wires.append(stack.enter_context(server.connect(seconds=ANSWER_SECONDS)))
            tally.count("connections of the crowd")
        at = 0
        while not stop.wait(PAUSE_SECONDS):
            # Requests of some clients are in flight at the same time.
            group = [wires[(at + step) % count] for step in range(20)]
            for number, wire in enumerate(group):
                wire.request(f"GET /number?{at + number} HTTP/1.1\nHost: test")
            for number, wire in enumerate(group):
                reply = wire.reply()
                if (reply.status, reply.body) != (200, b"%d" % (at + number)):
                    tally.find(f"wrong answer in the crowd: {reply.status} {reply.body[:100]!r} in place of {at + number}")
                tally.count("requests of the crowd")
            at += len(group)


def send_damage(server: AnyWebServer, tally: Tally, stop: threading.Event, chance: random.Random, corpus: Sequence[bytes]) -> None:
    while not stop.is_set():
        data = web_damage.stream(chance, corpus)
        pieces = web_damage.pieces(chance, data)
        resets = chance.random() < 0.2
        with server.connect(seconds=ANSWER_SECONDS) as wire:
            connection = wire._socket
            sent = b""
            got = b""
            try:
                for piece in pieces:
                    # The server may stop reading until its answers are read, so the worker never waits for room alone.
                    sent += send_all_or_read(connection, piece, (received := bytearray()))
                    got += received
                if resets:
                    wire.reset()
                else:
                    connection.shutdown(socket.SHUT_WR)
                    while part := connection.recv(1 << 16):
                        got += part
            except TimeoutError:
                tally.find(f"the connection does not end after {data!r}")
            except OSError:
                tally.count("damaged streams whose connection was reset")
            tally.damage(len(sent))
        tally.count("damaged streams")
        if got and not (match := STATUS.match(got)):
            tally.find(f"no response: {got[:100]!r} after {data!r}")
        elif got:
            tally.count(f"first response {match[1].decode()}")


def send_all_or_read(connection: socket.socket, data: bytes, received: bytearray) -> bytes:
    """Sends all of `data` and adds what arrives meanwhile to `received`. Returns the part that was sent before an error."""
    view, sent = memoryview(data), 0
    deadline = time.monotonic() + ANSWER_SECONDS
    connection.setblocking(False)
    try:
        while sent < len(data):
            progress_made = False
            with contextlib.suppress(BlockingIOError):
                sent += connection.send(view[sent:])
                progress_made = True
            with contextlib.suppress(BlockingIOError):
                part = connection.recv(1 << 16)
                if not part:
                    return data[:sent]
                received += part
                progress_made = True
            if not progress_made:
                if time.monotonic() > deadline:
                    raise TimeoutError
                time.sleep(0.002)
    except (ConnectionResetError, BrokenPipeError):
        pass
    finally:
        connection.settimeout(ANSWER_SECONDS)
    return data[:sent]


def read_slowly(server: AnyWebServer, tally: Tally, stop: threading.Event, count: int) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect(seconds=ANSWER_SECONDS)) for _ in range(count)]
        for wire in wires:
            wire.request("GET /endless-7d1f HTTP/1.1\nHost: test")
            stack.callback(linger_none, wire)
        while not stop.wait(1.0):
            for wire in wires:
                if not wire._socket.recv(1000):
                    tally.find("an endless response has ended")
                    return
                tally.count("pieces of slow readers")


def linger_none(wire: HttpWire) -> None:
    with contextlib.suppress(OSError):
        wire._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def send_slowly(server: AnyWebServer, tally: Tally, stop: threading.Event, count: int) -> None:
    """Half of the clients never end their head, the others never end their body. Each is ended with 408, and a new one comes."""
    beginnings = (b"GET / HTTP/1.1\r\nHost: test\r\nX-Slow: ", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n")
    wires: list[HttpWire] = []
    try:
        while not stop.wait(0.5):
            while len(wires) < count:
                wire = server.connect(1, seconds=ANSWER_SECONDS)
                wire.send(beginnings[len(wires) % 2])
                wires.append(wire)
                tally.count("slow senders")
            for wire in list(wires):
                if still_open(wire, tally):
                    continue
                wires.remove(wire)
                wire.close()
    finally:
        for wire in wires:
            wire.close()


def still_open(wire: HttpWire, tally: Tally) -> bool:
    wire._socket.setblocking(False)
    try:
        wire._socket.send(b"s")
        got = wire._socket.recv(1 << 16)
    except BlockingIOError:
        return True
    except OSError:
        return False
    if got and b" 408 " not in got[:20]:
        tally.find(f"a slow sender got {got[:80]!r}")
    tally.count("slow senders ended with 408", int(bool(got)))
    return False


def fail_now_and_then(server: AnyWebServer, tally: Tally, stop: threading.Event, chance: random.Random) -> None:
    while not stop.wait(FAILURE_PAUSE_SECONDS):
        target = chance.choice(("/loop-7d1f", "/throw-7d1f", "/allocate-7d1f"))
        with server.connect(seconds=ANSWER_SECONDS) as wire:
            status = wire.get(target).status
        if status != 500:
            tally.find(f"{target} was answered with {status}")
        tally.count(f"failing handlers: {target[1:-5]}")


def sample(server: WebServer, tally: Tally, stop: threading.Event, heap_bytes: int, connections_max: int) -> None:
    """Reads the counters. `heap_bytes`: the heap's use before the clients came."""
    bounds = {
        "webserver.exchanges.alive": connections_max,
        "webserver.messages_kept": KEPT_MESSAGES_MAX,
        "memory.heap_used_bytes": heap_bytes + CORES * (SCRIPT_MEMORY + 2 * OUTPUT_MEMORY) + (64 << 20),
        "memory.heap_refused": 0,
    }
    while not stop.wait(SAMPLE_SECONDS):
        counters = server.counters()
        for name, bound in bounds.items():
            tally.peak(name, counters[name], bound)
        tally.count("samples")


# --- The soak ----------------------------------------------------------------------------------------------------------------------------
def corpus() -> list[bytes]:
    """Requests to soak.js, valid and hostile."""
    from web_requests import chunked, get, post  # noqa: PLC0415
    from web_smuggling import LIMITS, SMUGGLING  # noqa: PLC0415

    valid = [
        get("/hello"),
        get("/number?17"),
        get("/headers", "Cookie: a=1\r\nCookie: b=2\r\nAccept: */*\r\nX-Empty:\r\n"),
        get("/chunks", "Connection: keep-alive\r\n"),
        get("/later"),
        get("/hello", method="HEAD"),
        get("http://test/hello"),
        get("*", method="OPTIONS"),
        post("/length", b"some bytes of a body"),
        post("/echo", b"echo" * 500),
        post("/length", b"", "Expect: 100-continue\r\n"),
        chunked("/echo", b"one ", b"two ", b"three" * 100, trailers="X-Sum: 3\r\n"),
        chunked("/length", b"l" * 3000),
        b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ]
    # A long hostile request would fill the streams with bytes that the server drops.
    return valid * 4 + [case.sent for case in [*SMUGGLING, *LIMITS] if len(case.sent) < 5000]


@contextlib.contextmanager
def all_parts(server: AnyWebServer, tally: Tally, seed: int, *, people: int, heap_bytes: int | None) -> Iterator[Parts]:
    """Runs all parts until the `with` block ends. `people`: the crowd's connections. `heap_bytes`: for the samples; None without them."""
    requests = corpus()
    with Parts(tally) as parts:
        parts.add("checks", lambda stop: check_answers(server, tally, stop, random.Random(seed)))
        for worker in range(DAMAGERS):
            chance = random.Random(seed + 1 + worker)
            parts.add(f"damage {worker}", lambda stop, chance=chance: send_damage(server, tally, stop, chance, requests))
        parts.add("crowd", lambda stop: crowd(server, tally, stop, people))
        parts.add("readers", lambda stop: read_slowly(server, tally, stop, READERS))
        parts.add("senders", lambda stop: send_slowly(server, tally, stop, SENDERS))
        if heap_bytes is not None:
            parts.add("failures", lambda stop: fail_now_and_then(server, tally, stop, random.Random(seed)))
            connections_max = people + READERS + SENDERS + DAMAGERS + 100
            parts.add("samples", lambda stop: sample(server, tally, stop, heap_bytes, connections_max))
        yield parts


def play(server: WebServer, tally: Tally, seed: int, count: int | None, seconds: float | None, people: int = CROWD) -> None:
    """Runs the soak on a machine that has started."""
    before = server.counters()["memory.heap_used_bytes"]
    with all_parts(server, tally, seed ^ 1 << 32, people=people, heap_bytes=before):
        wait(server, tally, None, WARM_UP_SECONDS)
    level = settled(server)
    tally.damaged_bytes = 0
    with all_parts(server, tally, seed, people=people, heap_bytes=before):
        wait(server, tally, count, seconds)
    server.check()
    for line in left(level, settled(server, level)):
        tally.find(line)


def wait(server: WebServer, tally: Tally, count: int | None, seconds: float | None) -> None:
    """Returns when `count` damaged bytes were sent, or `seconds` are over, or the machine has ended, or there are many findings."""
    deadline = None if seconds is None else time.monotonic() + seconds
    shown = time.monotonic()
    while len(tally.findings) < FINDINGS_MAX:
        if not server.machine.running:
            tally.find("the machine has ended: " + " / ".join(server.machine.lines[-20:]))
            return
        if (count is not None and tally.damaged_bytes >= count) or (deadline is not None and time.monotonic() >= deadline):
            return
        if time.monotonic() - shown > SHOW_SECONDS:
            shown = time.monotonic()
            progress.say(f"neap: soak: web: {tally.damaged_bytes} damaged bytes, {len(tally.findings)} findings")
        time.sleep(PAUSE_SECONDS)


def settled(server: WebServer, level: dict[str, int] | None = None) -> dict[str, int]:
    """Waits until no client's request is alive, and the heap is at `level` again. Returns the counters, the last ones after a minute. A
    response in a cycle of garbage, such as a listener that names it, lives until its core collects, so all cores get garbage first."""
    for _ in range(COLLECTING_REQUESTS):
        with server.connect(seconds=ANSWER_SECONDS) as wire:
            wire.get("/collect-7d1f")

    def quiet(counters: dict[str, int]) -> bool:
        return not left(level or {**counters, **dict.fromkeys(ALIVE, 0)}, counters)

    return server.settled(quiet, 60.0)


def left(level: dict[str, int], now: dict[str, int]) -> list[str]:
    """Returns what has not returned to the level."""
    found = [f"{name} is {now[name]} at the end, not 0" for name in ALIVE if now[name]]
    growth = now["memory.heap_used_bytes"] - level["memory.heap_used_bytes"]
    if growth > LEFT_HEAP_BYTES_MAX:
        found.append(f"the heap has grown by {growth} bytes since the first round, more than {LEFT_HEAP_BYTES_MAX}")
    return found


def report(tally: Tally, counters: dict[str, int]) -> list[str]:
    """Returns the lines of the table."""
    lines = [f"{'damaged bytes':48}{tally.damaged_bytes:>14}"]
    lines += [f"{name:48}{number:>14}" for name, number in sorted(tally.counts.items())]
    lines += [f"{name:48}{value:>14} of {bound} at most" for name, (value, bound) in sorted(tally.peaks.items())]
    lines += [f"{name:48}{number:>14}" for name, number in sorted(counters.items()) if name.startswith("webserver.") and number]
    return [*lines, f"{'findings':48}{len(tally.findings):>14}"]


def soak(minutes: float | None = None, count: int | None = None) -> int:
    """Runs the soak. Returns 1 after a finding."""
    if minutes is not None and not 0 < minutes <= MINUTES_MAX:
        raise UsageError(f"--minutes takes more than 0, not {minutes:g}")
    if count is not None and not 1 <= count <= BYTES_MAX:
        raise UsageError(f"--bytes takes 1 to {BYTES_MAX}, not {count}")
    if minutes is None and count is None:
        count = BYTES
    run.require_build_packages()
    packages.require("sources")
    qemu.command()
    build.build("image", ["webserver.elf"])
    build.build_soft_card()
    find_tests()
    from web_server import SCRIPTS, WebServer  # noqa: PLC0415

    seed = int(os.environ.get("NEAP_SOAK_SEED") or int.from_bytes(os.urandom(4), "little"))
    progress.say(f"neap: soak: web: seed {seed}")
    tally, counters = Tally(), {}
    with WebServer(SCRIPTS / "soak.js", cores=CORES, memory="1G", ports=2, words=WORDS) as server:
        try:
            play(server, tally, seed, count, None if minutes is None else 60 * minutes)
            counters = server.counters()
        except Exception as error:
            tally.find(f"{type(error).__name__}: {error}" + "".join(f"\n    {line}" for line in server.last_words()))
    print("\n".join(report(tally, counters)), flush=True)
    if tally.findings:
        print(f"again: NEAP_SOAK_SEED={seed} ./neap soak web", flush=True)
    return EXIT_FAILURE if tally.findings else 0


def find_tests() -> None:
    """Makes the modules of the system tests importable."""
    for folder in ("tests", "tests/system"):
        if (place := str(build.REPOSITORY / folder)) not in sys.path:
            sys.path.insert(0, place)
