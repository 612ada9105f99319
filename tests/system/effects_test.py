# SPDX-License-Identifier: BSL-1.0
"""Settings have the promised effects: interrupt moderation, polling, and a log that counts the same frames as the card.

The card's clock runs a hundred times slower than real time, like an emulated CPU. So an interval of 8 us is long enough to observe.
Assertions about time use the card's own trace. Times that the guest measured are only printed.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from observed import ObservedServer, Trace
from wire import Wire

pytestmark = [pytest.mark.image_only, pytest.mark.alone]

CORES = 3
# Reserved for control, so the other cores count only the load.
CONTROL_CORE = 2
LOAD_CORES = range(2)
TIME_SCALE = 0.01
ITR_US_MAX = 1022
CONNECTIONS_A_CORE = 3
LOAD_SECONDS = 2.0
PAUSES = 4
DRAIN_SECONDS = 30.0
FRAMES = 1_000_000
FRAMES_SECONDS = 600.0
LARGE = b"x" * (1 << 20)


@pytest.fixture(scope="module")
def server() -> Iterator[ObservedServer]:
    words = ["memory=64M", "log=512K", f"control_core={CONTROL_CORE}", "itr=8us"]
    with ObservedServer(cores=CORES, memory="768M", arguments=words, time_scale=TIME_SCALE) as server:
        yield server
        server.check()


class Load:
    """Clients that send one small request after another, each on its own connection."""

    def __init__(self, server: ObservedServer) -> None:
        self._wires = server.connect_to_each_core(LOAD_CORES, CONNECTIONS_A_CORE)
        self._wires[0].store(b"small", b"v" * 100)
        self._stop = threading.Event()
        self.replies = 0

    def run(self, seconds: float) -> None:
        self._stop.clear()
        with ThreadPoolExecutor(len(self._wires)) as together:
            asking = [together.submit(self._ask, wire) for wire in self._wires]
            time.sleep(seconds)
            self._stop.set()
        for one in asking:
            one.result()

    def ask_once(self) -> None:
        """Sends one request on each connection. The next request is sent after the answer, so each core has at most one request."""
        for wire in self._wires:
            self._get(wire)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def _get(self, wire: Wire) -> None:
        wire.ask(b"get small\r\n", b"VALUE small 0 100\r\n" + b"v" * 100 + b"\r\nEND\r\n")
        self.replies += 1

    def _ask(self, wire: Wire) -> None:
        while not self._stop.is_set():
            self._get(wire)


def set_itr(server: ObservedServer, itr_us: int) -> None:
    with server.control() as control:
        assert f"itr={itr_us}us" in control.ok_answer(f"itr,{itr_us}")
    # Waits until the interval that the last interrupt message started, with the previous setting, has expired.
    server.sleep_card_us(2 * ITR_US_MAX)


def assert_distances(trace: Trace, vector: int, itr_us: int) -> None:
    itr_ns = itr_us * 1000
    messages = trace.messages[vector]
    too_close = [distance for distance in trace.distances(vector) if distance < itr_ns]
    assert not too_close, f"vector {vector}, ITR {itr_us} us: interrupts {sorted(too_close)[:5]} ns apart"
    # An interrupt cause that occurs after a pause longer than the interval is reported at once.
    for before, after in zip(messages, messages[1:]):
        arrived = after["at"] - after["held"]
        assert arrived - before["at"] < itr_ns or after["held"] == 0, f"vector {vector}, ITR {itr_us} us: {after} after {before}"


@pytest.mark.parametrize("itr_us", [0, 8, 100, 1000])
def test_moderation_spaces_interrupts_except_the_first_after_a_pause(server: ObservedServer, itr_us: int, record_property) -> None:
    set_itr(server, itr_us)
    load = Load(server)
    with server.control() as control:
        control.ok_answer("start")
    server.sleep_card_us(2 * ITR_US_MAX)
    server.start_trace()
    load.run(LOAD_SECONDS)
    for _ in range(PAUSES):
        server.sleep_card_us(2 * ITR_US_MAX)
        load.ask_once()
    trace = server.stop_trace()
    with server.control() as control:
        control.ok_answer("stop")
    load.close()
    for core in LOAD_CORES:
        messages, distances = trace.messages[core], trace.distances(core)
        assert len(messages) > PAUSES, f"vector {core} had no load: this run shows nothing"
        assert set(trace.intervals[core]) <= {itr_us * 1000}, f"EITR of vector {core} was {trace.intervals[core]} ns"
        assert itr_us == 0 or trace.intervals[core], f"EITR of vector {core} was 0"
        assert_distances(trace, core, itr_us)
        at_once = [message for message, distance in zip(messages[1:], distances) if distance > ITR_US_MAX * 1000]
        assert len(at_once) >= PAUSES
        held = sum(message["held"] != 0 for message in messages)
        assert held == 0 if itr_us == 0 else itr_us < 100 or held > 0, f"vector {core}: {held} of {len(messages)} held back"
        guest = server.log(core).interrupt_intervals_us()
        medians = {"card_us": statistics.median(distances) / 1000, "guest_us": statistics.median(guest) * TIME_SCALE}
        text = ", ".join(f"{name} {value:.1f}" for name, value in medians.items())
        record_property(f"median_interval_core_{core}", text)
        print(f"ITR {itr_us} us, core {core}: {len(messages)} interrupts, {held} held back; median interval, in the card's time: {text}")


def test_a_polling_core_takes_no_interrupt_and_answers(server: ObservedServer, record_property) -> None:
    set_itr(server, 8)
    load = Load(server)
    with server.control() as control:
        for core in LOAD_CORES:
            control.ok_answer(f"idle,poll,{core}")
        try:
            server.sleep_card_us(2 * ITR_US_MAX)
            server.start_trace()
            load.run(LOAD_SECONDS)
            trace = server.stop_trace()
        finally:
            for core in LOAD_CORES:
                control.ok_answer(f"idle,halt,{core}")
    load.ask_once()
    load.close()
    taken = {core: len(trace.messages[core]) for core in LOAD_CORES}
    assert not any(taken.values()), f"interrupts by core: {taken}"
    assert load.replies > 2 * len(LOAD_CORES) * CONNECTIONS_A_CORE, "no request was served"
    record_property("replies", load.replies)


class Bulk:
    """A connection that moves large values to or from the guest, with many requests in flight. Values are counted and not compared."""

    DEPTH = 8

    def __init__(self, wire: Wire, number: int, upload: bool) -> None:
        self._wire = wire
        self._key = b"large-%d" % number
        self._wire.store(self._key, LARGE)
        self._upload = upload

    def run(self, enough: threading.Event) -> None:
        request = b"set %s 0 0 %d\r\n%s\r\n" % (self._key, len(LARGE), LARGE) if self._upload else b"get %s\r\n" % self._key
        answer = b"STORED\r\n" if self._upload else b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (self._key, len(LARGE), LARGE)
        unanswered = 0
        while unanswered or not enough.is_set():
            while unanswered < self.DEPTH and not enough.is_set():
                self._wire.send(request)
                unanswered += 1
            if unanswered:
                self._wire.expect(answer)
                unanswered -= 1

    def close(self) -> None:
        self._wire.close()


def frames_of(traffic: dict[int, dict[str, int]]) -> int:
    return sum(traffic[core]["rx_frames"] + traffic[core]["tx_frames"] for core in LOAD_CORES)


def run_until(server: ObservedServer, frames: int, streams: list[Bulk]) -> float:
    """Runs the streams until the load's queues have carried this many frames since the reset; gives the seconds."""
    begun = time.monotonic()
    enough = threading.Event()
    with ThreadPoolExecutor(len(streams)) as together:
        running = [together.submit(stream.run, enough) for stream in streams]
        try:
            while frames_of(server.card_traffic()) < frames and not any(one.done() for one in running):
                assert time.monotonic() < begun + FRAMES_SECONDS, f"{frames} frames take too long"
                time.sleep(0.2)
        finally:
            enough.set()
    for one in running:
        one.result()
    return time.monotonic() - begun


def quiet_card_traffic(server: ObservedServer) -> dict[int, dict[str, int]]:
    """Returns the card's counts once the load's queues are idle."""
    deadline = time.monotonic() + DRAIN_SECONDS
    before = server.card_traffic()
    while True:
        time.sleep(0.5)
        after = server.card_traffic()
        if all(before[core] == after[core] for core in LOAD_CORES):
            return after
        assert time.monotonic() < deadline, "the queues do not drain"
        before = after


def test_the_log_counts_every_frame_and_byte_that_the_card_counted(server: ObservedServer, record_property) -> None:
    set_itr(server, 8)
    # One stream in each direction on each core.
    wires = server.connect_to_each_core(LOAD_CORES, 2)
    streams = [Bulk(wire, number, upload=number >= len(LOAD_CORES)) for number, wire in enumerate(wires)]
    with server.control() as control:
        start = quiet_card_traffic(server)
        control.ok_answer("start")
        seconds = run_until(server, frames_of(start) + FRAMES, streams)
        end = quiet_card_traffic(server)
        control.ok_answer("stop")
        final = server.card_traffic()
    assert all(final[core] == end[core] for core in LOAD_CORES), "something came while the log was being stopped"
    for core in LOAD_CORES:
        card = {name: end[core][name] - start[core][name] for name in end[core]}
        log = server.log(core)
        assert log.unwritten == 0, "the log was too short"
        assert log.sums() == card, f"core {core}"
    for stream in streams:
        stream.close()
    frames = frames_of(end) - frames_of(start)
    assert frames >= FRAMES
    record_property("frames", frames)
    record_property("frames_per_second", round(frames / seconds))
    print(f"{frames} frames on cores {list(LOAD_CORES)} in {seconds:.1f} s")
