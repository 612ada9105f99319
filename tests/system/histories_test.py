# SPDX-License-Identifier: BSL-1.0
"""Concurrent clients of memcached on four cores: their histories are linearizable. Wrong histories are found.

A history is linearizable if all operations on a key have an order that one memcached could have executed, in which each operation lies
between its call and its return. `./neap soak histories` does the same for longer.
"""

import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import NeapServer, Server, StockServer

from tools import history_soak
from tools.control_client import fields_of

SECONDS = 5.0
SEED = 23


@pytest.fixture(scope="module")
def four_cores(stock: bool) -> Iterator[Server]:
    with StockServer("-m", "256") if stock else NeapServer(cores=history_soak.CORES, memory="512M", arguments=["memory=256M"]) as server:
        yield server


def test_histories_of_concurrent_clients_are_linearizable(four_cores: Server) -> None:
    history = history_soak.record(*four_cores.address, SECONDS, SEED)
    assert history.faults() == [], history.summary()
    four_cores.check()
    if isinstance(four_cores, NeapServer):
        with four_cores.control() as control:
            answers = [fields_of(control.ask(f"stats,{core}")) for core in range(history_soak.CORES)]
        # The card's hash chooses the core of each of the 32 connections. Of all ways to choose, 1 of 10^9 uses fewer than three cores.
        assert sum(int(answer["memcached.requests"]) > 0 for answer in answers) >= 3


# ---- a wrong memcached ----


class StaleMemcached(socketserver.StreamRequestHandler):
    """Answers as a memcached. If `stale`, some gets are answered from a copy that is nine operations old."""

    stale = True
    lock = threading.Lock()
    items: dict[bytes, tuple[int, int]] = {}  # value and unique
    copy: dict[bytes, tuple[int, int]] = {}
    operations = 0

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = line.split()
            data = self.rfile.readline().strip() if words[0] in (b"set", b"add", b"cas") else b""
            with self.lock:
                answer = self.answer(words, data)
            self.wfile.write(answer)

    def answer(self, words: list[bytes], data: bytes) -> bytes:
        kind, key = words[:2]
        here = StaleMemcached
        here.operations += 1
        if here.operations % 10 == 0:
            here.copy = dict(self.items)
        items = self.copy if self.stale and kind == b"get" and here.operations % 10 == 9 else self.items
        found = items.get(key)
        if kind in (b"get", b"gets"):
            unique = b" %d" % found[1] if found and kind == b"gets" else b""
            return b"VALUE %s 0 %d%s\r\n%d\r\nEND\r\n" % (key, len(str(found[0])), unique, found[0]) if found else b"END\r\n"
        if kind == b"add" and found:
            return b"NOT_STORED\r\n"
        if kind == b"cas" and found and found[1] != int(words[5]):
            return b"EXISTS\r\n"
        if found is None and kind not in (b"set", b"add"):
            return b"NOT_FOUND\r\n"
        if kind == b"touch":
            return b"TOUCHED\r\n"
        if kind == b"delete":
            del self.items[key]
            return b"DELETED\r\n"
        value = (found[0] + int(words[2])) % (1 << 64) if found and kind == b"incr" else int(data)
        self.items[key] = (value, self.operations)
        return b"%d\r\n" % value if kind == b"incr" else b"STORED\r\n"


@pytest.mark.parametrize("stale, result", [(True, "Illegal"), (False, "Ok")])
def test_a_memcached_with_stale_reads_is_found(monkeypatch: pytest.MonkeyPatch, stale: bool, result: str) -> None:
    monkeypatch.setattr(StaleMemcached, "stale", stale)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), StaleMemcached) as wrong:
        wrong.daemon_threads = True
        threading.Thread(target=wrong.serve_forever, daemon=True).start()
        history = history_soak.record("127.0.0.1", wrong.server_address[1], 1.0, SEED + stale)
        wrong.shutdown()
    assert history.result == result and bool(history.details) == stale


# ---- histories written by hand ----


def step(kind: str, answer: str, call: int, end: int, **fields: int) -> dict:
    return {"kind": kind, "key": "k", "answer": answer, "call_ns": call, "return_ns": end, **fields}


def verdict(folder: Path, *steps: dict) -> history_soak.History:
    path = folder / "history"
    path.write_text("".join(json.dumps({**one, "client": number % 4}) + "\n" for number, one in enumerate(steps)))
    return history_soak.report(["--check", str(path)])


STORED = step("set", "STORED", 0, 10, value=1)
WRONG = {
    "a lost update": [STORED, step("set", "STORED", 20, 30, value=2), step("get", "VALUE", 40, 50, got=1)],
    "a value that nothing stored": [STORED, step("get", "VALUE", 20, 30, got=3)],
    "a value before it was stored": [step("get", "VALUE", 0, 10, got=1), step("set", "STORED", 20, 30, value=1)],
    "an item after its deletion": [STORED, step("delete", "DELETED", 20, 30), step("get", "VALUE", 40, 50, got=1)],
    "one item deleted twice": [STORED, step("delete", "DELETED", 20, 40), step("delete", "DELETED", 30, 50)],
    "a lost item": [STORED, step("get", "END", 20, 30)],
    "a touch of an item that is gone": [STORED, step("delete", "DELETED", 20, 30), step("touch", "TOUCHED", 40, 50)],
    "two adds that both store": [step("add", "STORED", 0, 20, value=1), step("add", "STORED", 10, 30, value=2)],
    "an increment that is lost": [
        STORED, step("incr", "NUMBER", 20, 40, value=1, got=2), step("incr", "NUMBER", 30, 50, value=1, got=2),
    ],
    "two cas with one unique that both store": [
        STORED, step("gets", "VALUE", 20, 30, got=1, got_cas=7),
        step("cas", "STORED", 40, 60, value=2, unique=7), step("cas", "STORED", 50, 70, value=3, unique=7),
    ],
    "a cas that is refused although nothing changed": [
        STORED, step("gets", "VALUE", 20, 30, got=1, got_cas=7), step("cas", "EXISTS", 40, 60, value=2, unique=7),
    ],
    "a new value with the old unique": [
        STORED, step("gets", "VALUE", 20, 30, got=1, got_cas=7), step("set", "STORED", 40, 50, value=2),
        step("gets", "VALUE", 60, 70, got=2, got_cas=7),
    ],
    "reads that go back in time": [
        STORED, step("set", "STORED", 20, 90, value=2), step("get", "VALUE", 30, 40, got=2), step("get", "VALUE", 50, 60, got=1),
    ],
}  # fmt: skip
RIGHT = {
    "a read beside a store may see either value": [
        STORED, step("set", "STORED", 20, 90, value=2), step("get", "VALUE", 30, 40, got=1), step("get", "VALUE", 50, 60, got=2),
    ],
    "of two cas with one unique, one stores": [
        STORED, step("gets", "VALUE", 20, 30, got=1, got_cas=7), step("cas", "EXISTS", 40, 60, value=2, unique=7),
        step("cas", "STORED", 50, 70, value=3, unique=7), step("gets", "VALUE", 80, 90, got=3, got_cas=8),
    ],
    "a touch leaves the unique": [
        STORED, step("gets", "VALUE", 20, 30, got=1, got_cas=7), step("touch", "TOUCHED", 40, 50),
        step("cas", "STORED", 60, 70, value=2, unique=7),
    ],
    "an overflow wraps around": [
        step("set", "STORED", 0, 10, value=(1 << 64) - 1), step("incr", "NUMBER", 20, 30, value=2, got=1),
        step("get", "VALUE", 40, 50, got=1),
    ],
    "a read beside a deletion": [
        STORED, step("delete", "DELETED", 20, 90), step("get", "END", 30, 40), step("touch", "NOT_FOUND", 50, 60),
        step("incr", "NOT_FOUND", 50, 60, value=1), step("cas", "NOT_FOUND", 50, 60, value=2, unique=7),
        step("delete", "NOT_FOUND", 50, 60),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_rejected(tmp_path: Path, name: str) -> None:
    history = verdict(tmp_path, *WRONG[name])
    assert history.result == "Illegal"
    assert any("not linearizable" in fault for fault in history.faults()) and any("key k" in line for line in history.details)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_history_is_accepted(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, *RIGHT[name]).result == "Ok"


def test_a_history_of_one_client_alone_is_no_test(tmp_path: Path) -> None:
    faults = verdict(tmp_path, STORED, step("get", "VALUE", 20, 30, got=1)).faults()
    assert "no two operations on one key overlapped" in faults and "no operation answered cas EXISTS" in faults
