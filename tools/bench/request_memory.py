# SPDX-License-Identifier: BSL-1.0
"""Rows of `./neap bench request` that are not about requests: the way to a listening port, and the memory of items and connections.

They boot memcached on the soft card behind QEMU's user network. Memory is that of the heap (`memory.heap_used_bytes` of control), so an
object's share of its size class counts. Stock memcached's figures beside it are those of 1.6.18 with the same items, from its `stats`.
"""

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools import build
from tools.bench import instructions
from tools.bench.rows import Row
from tools.control_client import Control
from tools.errors import Failure
from tools.machine import LOOPBACK, Machine
from tools.machine_registry import CONTROL_PORT

PORT = 11211
LISTENING = r"memcached: listening on [0-9.]+:11211"
START_SECONDS = 120.0
ANSWER_SECONDS = 60.0
# QEMU's user network listens with a backlog of one.
CONNECT_PAUSE_SECONDS = 0.01
STORED = 2000
OPENED = 200
KEY_BYTES = 16
# Stock memcached's bytes of an item with a key of 16 bytes, by the bytes of the value.
STOCK = {10: 99, 100: 205, 1000: 1180}
MEBIBYTE = 1 << 20

BOOT = ("power_on_to_listening", "power_on_to_listening.image", "power_on_to_listening.firmware")
ITEMS = tuple(f"item_bytes.{value_bytes}" for value_bytes in STOCK)
CONNECTIONS = ("connection_bytes.idle", "machine_mebibytes.idle_1_core", "machine_mebibytes.idle_4_cores")


def boot(image: Path) -> list[Row]:
    """The instructions of all cores until memcached listens: all, the image's own, and those of QEMU's firmware before it. The image is in
    the upper half of the address space; its first some 10,000 instructions, until it runs there, count as the firmware's. The firmware is
    that of `./neap run` (Machine)."""
    build.build_soft_card()
    with tempfile.TemporaryDirectory(prefix="neap-bench-") as directory:
        out = Path(directory) / "counts.json"
        with _machine(image, qemu_options=instructions.counter_options(out)):
            pass
        counts = instructions.read_counts(out)
    whole, own = sum(counts.cpus), sum(counts.upper)
    return [
        Row(f"request.{BOOT[0]}", "instructions until memcached listens", whole, 5e6),
        Row(f"request.{BOOT[1]}", "instructions of the image until memcached listens", own),
        Row(f"request.{BOOT[2]}", "instructions of the firmware before the image", whole - own),
    ]


def items(image: Path) -> list[Row]:
    build.build_soft_card()
    found = []
    with contextlib.ExitStack() as stack:
        machine = stack.enter_context(_machine(image))
        client = stack.enter_context(socket.create_connection((LOOPBACK, machine.port(PORT)), ANSWER_SECONDS))
        with client.makefile("rb") as answers:
            for name, (value_bytes, stock) in zip(ITEMS, STOCK.items()):
                _store(client, answers, 100_000, 100, value_bytes)  # so that the slabs and the caches of this size exist
                before = _heap_bytes(machine)
                _store(client, answers, value_bytes * 1_000_000, STORED, value_bytes)
                each = (_heap_bytes(machine) - before) / STORED
                # Below the target means at most stock memcached's bytes.
                found.append(Row(f"request.{name}", f"bytes, key of {KEY_BYTES} bytes", each, stock + 1, stock, "memcached 1.6.18"))
    return found


def connections(image: Path) -> list[Row]:
    build.build_soft_card()
    found = []
    for cores in (1, 4):
        with _machine(image, cores=cores) as machine, contextlib.ExitStack() as stack:
            used = _statistic(machine, "memory.total_bytes") - _statistic(machine, "memory.free_bytes")
            if cores == 1:
                _open(machine, stack)  # so that the caches of a connection's objects exist
                before = _heap_bytes(machine)
                for _ in range(OPENED):
                    _open(machine, stack)
                found.append(Row(f"request.{CONNECTIONS[0]}", "bytes", (_heap_bytes(machine) - before) / OPENED, 481))
            name = CONNECTIONS[1] if cores == 1 else CONNECTIONS[2]
            found.append(Row(f"request.{name}", "MiB of pages in use, memcached listens", used / MEBIBYTE))
    return found


@contextlib.contextmanager
def _machine(image: Path, cores: int = 1, qemu_options: Sequence[str] = ()) -> Iterator[Machine]:
    forward = [(0, PORT), (0, CONTROL_PORT)]
    with Machine(image, cores=cores, memory="512M", forward=forward, qemu_options=list(qemu_options)) as machine:
        machine.wait_for_line(LISTENING, START_SECONDS)
        yield machine


def _statistic(machine: Machine, name: str) -> int:
    with Control(LOOPBACK, machine.port(CONTROL_PORT), answer_seconds=ANSWER_SECONDS) as control:
        answer = control.ask("stats")
    try:
        return int(dict(word.split("=", 1) for word in answer.removeprefix("ok ").replace(";", " ").split() if "=" in word)[name])
    except (ValueError, KeyError) as error:
        raise Failure(f"control's statistics have no {name}: {error}") from None


def _heap_bytes(machine: Machine) -> int:
    return _statistic(machine, "memory.heap_used_bytes")


def _open(machine: Machine, stack: contextlib.ExitStack) -> None:
    """Opens a connection that has been answered once."""
    client = stack.enter_context(socket.create_connection((LOOPBACK, machine.port(PORT)), ANSWER_SECONDS))
    client.sendall(b"get x\r\n")
    if client.recv(100) != b"END\r\n":
        raise Failure("memcached did not answer a new connection")
    time.sleep(CONNECT_PAUSE_SECONDS)


def _store(client: socket.socket, answers, first: int, count: int, value_bytes: int) -> None:
    for number in range(first, first + count):
        client.sendall(b"set %0*d 0 0 %d\r\n%s\r\n" % (KEY_BYTES, number, value_bytes, b"v" * value_bytes))
        if answers.readline() != b"STORED\r\n":
            raise Failure(f"memcached did not store a value of {value_bytes} bytes")
