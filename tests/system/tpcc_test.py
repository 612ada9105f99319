# SPDX-License-Identifier: BSL-1.0
"""TPC-C's transactions by clients over the network: stock clients, hostile ones, and tables that are consistent after each of them.

Each test ends with the check of the consistency conditions, so a transaction that is applied in part would be found.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from servers import CONTROL_SECONDS, GUEST_PORT
from wire import ANSWER_SECONDS, Closed, Wire

from tools import build
from tools.control_client import Control
from tools.errors import Failure
from tools.machine import LOOPBACK, SOFT_CARD, Machine
from tools.machine_registry import CONTROL_PORT

CORES = 2
START_SECONDS = 300.0
CHECK_SECONDS = 120.0
CONNECT_PAUSE_SECONDS = 0.01
CONNECTIONS = 1000
NAMES = {"new_order", "payment", "order_status", "delivery", "stock_level"}


class TpccServer:
    """The image on a soft card behind QEMU's user network. A context manager."""

    def __init__(self, memory: str = "2G", words: tuple[str, ...] = ()) -> None:
        image = build.image("tpcc", "image")
        if not image.is_file() or not SOFT_CARD.is_file():
            raise Failure("tpcc's image or the soft card is not built", "./neap test system builds them, so does ./neap run tpcc")
        forward = [(0, GUEST_PORT), (0, CONTROL_PORT)]
        self.machine = Machine(image, cores=CORES, memory=memory, forward=forward, arguments=["warehouses=1", *words])

    def __enter__(self) -> TpccServer:
        self.machine.start()
        try:
            self.machine.wait_for_line(r"tpcc: listening on ", START_SECONDS)
        except BaseException:
            self.machine.stop()
            raise
        self.address = (LOOPBACK, self.machine.port(GUEST_PORT))
        return self

    def __exit__(self, *_error: object) -> None:
        self.machine.stop()

    def connect(self, seconds: float = ANSWER_SECONDS) -> Wire:
        wire = Wire(self.address, seconds)
        time.sleep(CONNECT_PAUSE_SECONDS)
        return wire

    def control(self) -> Control:
        return Control(LOOPBACK, self.machine.port(CONTROL_PORT), answer_seconds=CONTROL_SECONDS)

    def statistics(self) -> dict[str, int]:
        with self.connect() as wire:
            wire.send(b"stats\r\n")
            lines = iter(lambda: wire.read_line(), b"END")
            return {name.decode(): int(value) for _, name, value in (line.split() for line in lines)}

    def check(self) -> None:
        """The server serves, and its tables are consistent."""
        with self.connect(CHECK_SECONDS) as wire:
            assert answer(wire) in NAMES
            assert wire.ask_line(b"stats tpcc consistency\r\n") == b"STAT consistency ok"
            assert wire.read_line() == b"END"


def answer(wire: Wire, key: bytes = b"k") -> str:
    """Runs a transaction and returns its type."""
    head = wire.ask_line(b"get " + key + b"\r\n")
    found = re.fullmatch(rb"VALUE " + key + rb" 0 (\d+)", head)
    assert found, head
    text = wire.read_line()
    assert len(text) == int(found[1]), text
    assert wire.read_line() == b"END"
    return text.split()[0].decode()


@pytest.fixture(scope="module")
def _machine() -> Iterator[TpccServer]:
    with TpccServer() as server:
        yield server


@pytest.fixture
def server(_machine: TpccServer) -> Iterator[TpccServer]:
    yield _machine
    _machine.check()


def test_the_mix_is_that_of_the_specification(server: TpccServer) -> None:
    counts = dict.fromkeys(NAMES, 0)
    with server.connect() as wire:
        for _ in range(200):
            counts[answer(wire)] += 1
    assert 60 <= counts["new_order"] <= 120 and 60 <= counts["payment"] <= 120
    assert all(counts.values()), "each deck of 100 cards has each type"


def test_a_stock_client_sets_and_gets(server: TpccServer) -> None:
    base = pytest.importorskip("pymemcache.client.base")
    client = base.Client(server.address, timeout=ANSWER_SECONDS)
    assert client.set("key", b"ignored", noreply=False)
    assert client.get("key").split()[0].decode() in NAMES
    many = client.get_many([f"key{i}" for i in range(20)])
    assert len(many) == 20 and {text.split()[0].decode() for text in many.values()} <= NAMES
    client.close()


def test_clients_on_all_cores_run_transactions_at_once(server: TpccServer) -> None:
    def run(_: int) -> int:
        with server.connect() as wire:
            return sum(answer(wire) in NAMES for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [50] * 8


def test_a_client_that_leaves_in_the_middle_leaves_nothing_half_applied(server: TpccServer) -> None:
    before = server.statistics()
    for sent in (b"get k", b"get a b c\r\n" * 40, b"set k 0 0 1000\r\nabc", b"get k\r\n" * 500, b"stats tpcc consistency\r\nget k\r\n"):
        for leave in (Wire.reset, Wire.close, Wire.end_sending):
            wire = server.connect()
            wire.send(sent)
            leave(wire)
            wire.close()
    server.check()
    assert server.statistics()["requests.transactions"] > before["requests.transactions"]


def test_a_client_that_does_not_read_is_stopped(server: TpccServer) -> None:
    with server.connect(seconds=5) as wire, contextlib.suppress(Closed, TimeoutError):
        for _ in range(1000):
            wire.send(b"get k\r\n" * 1000)
    server.check()


def test_a_thousand_connections_are_served(server: TpccServer) -> None:
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.connect()) for _ in range(CONNECTIONS)]
        for wire in wires:
            assert answer(wire) in NAMES
    assert server.statistics()["connections.accepted"] >= CONNECTIONS


def test_control_checks_and_counts(server: TpccServer) -> None:
    with server.control() as control:
        assert control.ask("consistency").startswith("ok")
        assert "tpcc.new_order.committed=" in control.ask("stats")


def test_with_the_memory_full_inserting_transactions_are_refused_whole() -> None:
    with TpccServer(memory="768M", words=("reserve=64M", "max-reqs-per-event=64")) as server:
        deadline = time.monotonic() + 600
        with server.connect() as wire:
            while not server.statistics()["new_order.out_of_memory"]:
                assert time.monotonic() < deadline, server.statistics()
                wire.send(b"get k\r\n" * 2000)
                for _ in range(2000):
                    line = wire.read_line()
                    while line.startswith(b"VALUE "):
                        wire.read_line()
                        line = wire.read_line()
                    assert line in (b"END", b"SERVER_ERROR out of memory"), line
        with server.connect(CHECK_SECONDS) as wire:
            assert wire.ask_line(b"stats tpcc consistency\r\n") == b"STAT consistency ok"
