# SPDX-License-Identifier: BSL-1.0
"""TPC-C's transactions by clients over the network: stock clients, hostile ones, and tables that are consistent after each of them.

Each test ends with the check of the consistency conditions, so a transaction that is applied in part would be found.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from servers import CONTROL_SECONDS, GUEST_PORT
from wire import ANSWER_SECONDS, Closed, Wire

from tools import build
from tools.control_client import Control
from tools.errors import Failure
from tools.log import decode, summary
from tools.machine import BAD_COMMAND_LINE, DEFAULT_CARD, FAILURE, LOOPBACK, SOFT_CARD, Machine, usual_card
from tools.machine_registry import CONTROL_PORT
from tools.process import finished

CORES = 2
START_SECONDS = 300.0
CHECK_SECONDS = 120.0
CONNECT_PAUSE_SECONDS = 0.01
CONNECTIONS = 1000
# Memory above the reserve, for some thousand orders.
ROOM_BYTES = 6 << 20
NAMES = {"new_order", "payment", "order_status", "delivery", "stock_level"}


class TpccServer:
    """The image behind QEMU's user network. A context manager."""

    def __init__(self, *words: str, memory: str = "2G", cores: int = CORES) -> None:
        image = build.image("tpcc", "image")
        if not image.is_file() or (usual_card() == DEFAULT_CARD and not SOFT_CARD.is_file()):
            raise Failure("tpcc's image or the soft card is not built", "./neap test system builds them, so does ./neap run tpcc")
        forward = [(0, GUEST_PORT), (0, CONTROL_PORT)]
        self.machine = Machine(image, cores=cores, memory=memory, forward=forward, arguments=list(words))

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

    def control(self, seconds: float = CONTROL_SECONDS) -> Control:
        return Control(LOOPBACK, self.machine.port(CONTROL_PORT), answer_seconds=seconds)

    def statistics(self) -> dict[str, int]:
        with self.connect() as wire:
            wire.send(b"stats\r\n")
            lines = iter(lambda: wire.read_line(), b"END")
            return {name.decode(): int(value) for _, name, value in (line.split() for line in lines)}

    def check(self) -> None:
        """The server serves, and its tables are consistent."""
        with self.connect() as wire:
            assert type_of(answer(wire)) in NAMES
        with self.control(CHECK_SECONDS) as control:
            assert control.ask("consistency") == "ok consistent"


def type_of(text: bytes) -> str:
    return text.split()[0].decode()


def field_of(text: bytes, name: str) -> int:
    return int(dict(word.split(b"=") for word in text.split() if b"=" in word)[name.encode()])


def answer(wire: Wire, key: bytes = b"k") -> bytes:
    """Runs a transaction and returns its answer."""
    head = wire.ask_line(b"get " + key + b"\r\n")
    found = re.fullmatch(rb"VALUE " + key + rb" 0 (\d+)", head)
    assert found, head
    text = wire.read_line()
    assert len(text) == int(found[1]), text
    assert wire.read_line() == b"END"
    return text


@pytest.fixture(scope="module")
def _machine() -> Iterator[TpccServer]:
    with TpccServer("warehouses=1") as server:
        yield server


@pytest.fixture
def server(_machine: TpccServer) -> Iterator[TpccServer]:
    yield _machine
    _machine.check()


def test_the_mix_is_that_of_the_specification(server: TpccServer) -> None:
    counts = dict.fromkeys(NAMES, 0)
    with server.connect() as wire:
        for _ in range(200):
            counts[type_of(answer(wire))] += 1
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
            return sum(type_of(answer(wire)) in NAMES for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [50] * 8


def test_a_client_that_leaves_in_the_middle_leaves_nothing_half_applied(server: TpccServer) -> None:
    before = server.statistics()
    for sent in (b"get k", b"get a b c\r\n" * 40, b"set k 0 0 1000\r\nabc", b"get k\r\n" * 500, b"stats\r\n" * 20 + b"get k"):
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
            assert type_of(answer(wire)) in NAMES
    assert server.statistics()["connections.accepted"] >= CONNECTIONS


def test_the_counters_agree_with_the_answers(server: TpccServer) -> None:
    before = server.statistics()
    counts = dict.fromkeys(NAMES, 0)
    with server.connect() as wire:
        for _ in range(100):
            counts[type_of(answer(wire))] += 1
    after = server.statistics()
    assert after["cmd_get"] - before["cmd_get"] == 100
    for name, count in counts.items():
        assert sum(after[f"{name}.{end}"] - before[f"{name}.{end}"] for end in ("committed", "rolled_back")) == count
    with server.control() as control:
        assert f"tpcc.new_order.committed={after['new_order.committed']};" in control.ask("stats").split()


def test_only_control_may_ask_for_a_check(server: TpccServer) -> None:
    with server.connect() as wire:
        assert wire.ask_line(b"stats tpcc consistency\r\n") == b"ERROR"
    # Transactions go on after a check that they met.
    with server.connect() as wire, server.control(CHECK_SECONDS) as control:
        wire.send(b"get k\r\n" * 100)
        assert control.ask("consistency") == "ok consistent"
        assert sum(wire.read_line() == b"END" for _ in range(300)) == 100


def test_a_log_has_the_transactions_of_each_type(server: TpccServer, tmp_path: Path) -> None:
    counts = dict.fromkeys(NAMES, 0)
    with server.control() as control, server.connect() as wire:
        assert control.ask("start").startswith("ok")
        for _ in range(100):
            counts[type_of(answer(wire))] += 1
        assert control.ask("stop").startswith("ok")
    target = f"{LOOPBACK}:{server.machine.port(CONTROL_PORT)}"
    done = finished(
        [sys.executable, str(build.REPOSITORY / "neap"), "log", "fetch", target, "--out", str(tmp_path / "log")], CONTROL_SECONDS
    )
    assert done.returncode == 0, done.stderr
    found = summary.summarise(decode.load([str(tmp_path / "log")]))["total"]["transactions"]
    for name, count in counts.items():
        assert found[name]["committed"] + found[name]["rolled_back"] == count, found
        assert found[name]["failed"] == 0


def orders(seed: int) -> list[bytes]:
    with TpccServer("warehouses=2", f"seed={seed}", cores=1) as server, server.connect() as wire:
        texts = [text for text in (answer(wire) for _ in range(60)) if type_of(text) in ("new_order", "payment")]
        server.check()
    assert {field_of(text, "w") for text in texts} == {1, 2}
    return texts


def test_equal_seeds_give_equal_tables_and_transactions() -> None:
    first = orders(5)
    assert orders(5) == first
    assert orders(6) != first


def test_silent_clients_and_those_over_the_limit_are_closed() -> None:
    with TpccServer("warehouses=1", "connections=2", "idle_timeout=5", cores=1) as server:
        with server.connect() as first, server.connect() as second:
            assert type_of(answer(first)) in NAMES and type_of(answer(second)) in NAMES
            with server.connect() as third:
                assert third.read_line() == b"ERROR Too many open connections"
                third.expect_closed()
            first.expect_closed()
            second.expect_closed()
        counters = server.statistics()
        assert counters["connections.refused"] == 1 and counters["connections.idle_closed"] == 2
        server.check()


@pytest.mark.parametrize(
    "word", ["warehouses=0", "warehouses=5000", "seed=first", "port=0", "connections=0", "attempts=0", "reserve=100T", "warehouse=1"]
)
def test_a_bad_word_stops_the_boot_with_an_error(word: str) -> None:
    with Machine(build.image("tpcc", "image"), arguments=[word]) as machine:
        assert machine.wait_exit(START_SECONDS) == BAD_COMMAND_LINE
        assert any(word.split("=")[0] in line for line in machine.lines), machine.lines


def test_tables_that_do_not_fit_stop_the_boot_with_a_hint() -> None:
    with Machine(build.image("tpcc", "image"), memory="512M", arguments=["warehouses=8"]) as machine:
        assert machine.wait_exit(START_SECONDS) == FAILURE
        assert any("not enough memory for the tables; give more memory, or fewer warehouses=" in line for line in machine.lines), (
            machine.lines
        )


def test_with_the_memory_full_inserting_transactions_are_refused_whole() -> None:
    with TpccServer("warehouses=1") as server, server.control() as control:
        found = re.search(r"memory\.free_bytes=(\d+)", control.ask("stats"))
        assert found
        free_bytes = int(found[1])
    with TpccServer("warehouses=1", f"reserve={free_bytes - ROOM_BYTES}", "max-reqs-per-event=64") as server:
        deadline = time.monotonic() + 600
        ends = {b"END", b"SERVER_ERROR out of memory"}
        with server.connect() as wire:
            while min(server.statistics()[f"{name}.out_of_memory"] for name in ("new_order", "payment")) < 20:
                assert time.monotonic() < deadline, server.statistics()
                wire.send(b"get k\r\n" * 500)
                for _ in range(500):
                    line = wire.read_line()
                    while line.startswith(b"VALUE "):
                        wire.read_line()
                        line = wire.read_line()
                    assert line in ends, line
        before = server.statistics()
        with server.connect() as wire:
            wire.send(b"get k\r\n" * 300)
            for _ in range(300):
                while wire.read_line() not in ends:
                    pass
        after = server.statistics()
        assert after["order_status.committed"] > before["order_status.committed"], "transactions that insert nothing go on"
        assert after["new_order.committed"] == before["new_order.committed"]
        with server.control(CHECK_SECONDS) as control:
            assert control.ask("consistency") == "ok consistent"
