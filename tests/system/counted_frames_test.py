# SPDX-License-Identifier: BSL-1.0
"""A log counts the same frames as the card, over a million frames. tests/model/effects_test.py tests the effects of settings."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from observed import ObservedServer
from wire import Wire

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]  # its counters

CORES = 3
# This core is reserved for control, so the other cores count only the load.
CONTROL_CORE = 2
LOAD_CORES = range(2)
DRAIN_SECONDS = 30.0
FRAMES = 1_000_000
FRAMES_SECONDS = 600.0
LARGE = b"x" * (1 << 20)


@pytest.fixture(scope="module")
def server() -> Iterator[ObservedServer]:
    words = ["memory=64M", "log=512K", f"control_core={CONTROL_CORE}", "itr=8us"]
    with ObservedServer(cores=CORES, memory="768M", arguments=words) as server:
        yield server
        server.check()


class Bulk:
    """A connection that sends large values to the guest or gets them, with many requests in flight. Values are counted and not compared."""

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
    """Runs the streams until the queues of LOAD_CORES have carried `frames` frames since the card's reset. Returns the seconds."""
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
    """Returns the card's counts as soon as the queues of LOAD_CORES are idle."""
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
    # There is one stream in each direction on each core.
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
