# SPDX-License-Identifier: BSL-1.0
"""Operations and limits that need the machine: connections, silent clients, watchers, UDP, and the end by a command."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from servers import NeapServer
from wire import Closed, Wire

from tools import top
from tools.machine import LOOPBACK, SUCCESS
from tools.process import wait_until

pytestmark = pytest.mark.image_only

CONNECTIONS_MAX = 12
IDLE_SECONDS = 4
REFUSED = b"ERROR Too many open connections"
WORDS = [f"conn-limit={CONNECTIONS_MAX}", "memory-limit=16", "watcher_logbuf_size=8"]


@pytest.fixture(scope="module")
def machine() -> Iterator[NeapServer]:
    with NeapServer(cores=2, memory="256M", arguments=WORDS, udp=True) as server:
        yield server


def statistics(wire: Wire, topic: bytes = b"") -> dict[str, str]:
    wire.send(b"stats" + (b" " + topic if topic else b"") + b"\r\n")
    found = {}
    while (line := wire.read_line()) != b"END":
        _, name, value = line.decode().split(" ", 2)
        found[name] = value
    return found


def wait_for_connections(wire: Wire, count: int) -> None:
    assert wait_until(lambda: int(statistics(wire)["curr_connections"]) == count, 20, 0.1), statistics(wire)["curr_connections"]


def test_connections_over_the_limit_get_an_error_and_are_closed(machine: NeapServer) -> None:
    with machine.connect() as first, contextlib.ExitStack() as others:
        wait_for_connections(first, 1)
        for _ in range(CONNECTIONS_MAX - 1):
            wire = others.enter_context(machine.connect())
            assert wire.ask_line(b"version\r\n").startswith(b"VERSION ")
        with machine.connect() as refused:
            assert refused.read_line() == REFUSED
            with pytest.raises(Closed):
                refused.read_line()
        shown = statistics(first)
        assert shown["rejected_connections"] == "1"
        assert shown["curr_connections"] == shown["max_connections"] == str(CONNECTIONS_MAX)
        others.close()
        wait_for_connections(first, 1)
        with machine.connect() as again:
            assert again.ask_line(b"version\r\n").startswith(b"VERSION ")


def test_stats_conns_lists_the_connections_of_all_cores(machine: NeapServer) -> None:
    with machine.connect() as asking, contextlib.ExitStack() as others:
        wait_for_connections(asking, 1)
        for _ in range(6):
            others.enter_context(machine.connect()).ask_line(b"version\r\n")
        uploading = others.enter_context(machine.connect())
        uploading.send(b"set half 0 0 1000\r\nx")
        assert wait_until(lambda: "conn_nread" in statistics(asking, b"conns").values(), 20, 0.1)
        asking.send(b"stats conns\r\n")
        lines = []
        while (line := asking.read_line()) != b"END":
            lines.append(line.decode())
        ids = re.findall(r"^STAT (\d+):addr tcp:10\.0\.2\.2:\d+$", "\n".join(lines), re.MULTILINE)
        assert len(set(ids)) == len(ids) == 8
        assert lines[0] == "STAT 0:addr tcp:0.0.0.0:11211" and "STAT 1:addr udp:0.0.0.0:11211" in lines
        assert lines[-2] == f"STAT {ids[-1]}:state conn_parse_cmd" and lines[-1] == f"STAT {ids[-1]}:secs_since_last_cmd 0"


def test_rusage_is_the_time_that_the_cores_were_not_asleep(machine: NeapServer) -> None:
    # The host may stop the machine between its readings of a core's time asleep and of the clock; the sum is then too large.
    slack_ns = 20_000_000

    def rusage_ns() -> int:
        seconds, millionths = statistics(wire)["rusage_user"].split(".")
        return 10**9 * int(seconds) + 1000 * int(millionths)

    with machine.connect() as wire, machine.control() as control:
        before = rusage_ns()
        awake_ns = sum(row["now_ns"] - row["asleep_ns"] for row in top.parse(control.ask("cores"), "the machine"))
        assert 0 < before <= awake_ns + slack_ns and awake_ns <= rusage_ns() + slack_ns


def test_a_watcher_sees_requests_and_connections_of_all_cores(machine: NeapServer) -> None:
    with machine.connect() as watcher:
        watcher.ask(b"watch fetchers connevents\r\n", b"OK\r\n")
        for _ in range(6):
            with machine.connect() as client:
                client.ask(b"get k\r\n", b"END\r\n")
                client.send(b"quit\r\n")
                with pytest.raises(Closed):
                    client.read_line()
        seen: dict[str, list[str]] = {}
        while len(seen.get("conn_close", [])) < 6:
            line = read_log_line(watcher)
            seen.setdefault(re.search(r" type=(\w+) ", line)[1], []).append(line)
        assert len(seen["conn_new"]) == len(seen["item_get"]) == 6
        assert all(" reason=normal " in line for line in seen["conn_close"])
        opened = {re.search(r"cfd=(\d+)", line)[1] for line in seen["conn_new"]}
        assert opened == {re.search(r"cfd=(\d+)", line)[1] for line in seen["item_get"]}


def read_log_line(wire: Wire) -> str:
    """A watcher's lines end with LF alone."""
    text = b""
    while not text.endswith(b"\n"):
        text += wire.read_exactly(1)
    return text.decode()


# A client may close its side after the command, as `nc` does, and still gets the whole dump.
def test_a_dump_is_complete_for_a_client_that_has_closed_its_side(machine: NeapServer) -> None:
    with machine.connect() as wire:
        wire.ask(b"flush_all\r\n", b"OK\r\n")
        for batch in range(20):
            wire.send(b"".join(b"set key%d 0 0 1 noreply\r\nx\r\n" % (batch * 100 + number) for number in range(100)))
        assert wire.ask_line(b"version\r\n").startswith(b"VERSION ")
        wire.send(b"lru_crawler mgdump all\r\n")
        wire.end_sending()
        lines = set()
        while (line := wire.read_line()) != b"EN":
            lines.add(line)
        assert lines == {b"mg key%d" % number for number in range(2000)}


def ask_by_udp(port: int, number: int, request: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(20)
        client.sendto(struct.pack(">HHHH", number, 0, 1, 0) + request, (LOOPBACK, port))
        parts: dict[int, bytes] = {}
        count = 1
        while len(parts) < count:
            data = client.recv(2000)
            assert len(data) <= 1400
            answered, part, count, reserved = struct.unpack(">HHHH", data[:8])
            assert (answered, reserved) == (number, 0)
            parts[part] = data[8:]
        return b"".join(parts[part] for part in range(count))


def test_udp_serves_requests_of_one_datagram(machine: NeapServer) -> None:
    _, port = machine.address
    assert ask_by_udp(port, 1, b"set u 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    assert ask_by_udp(port, 2, b"get u\r\nget missing\r\n") == b"VALUE u 5 3\r\nabc\r\nEND\r\nEND\r\n"
    assert ask_by_udp(port, 3, b"watch\r\n") == b"ERROR\r\n"
    assert ask_by_udp(port, 4, b"stats conns\r\n") == b"ERROR\r\n"
    with machine.connect() as wire:
        value = bytes(range(33, 127)) * 300
        wire.store(b"long", value)
        assert ask_by_udp(port, 5, b"get long\r\n") == b"VALUE long 0 %d\r\n%s\r\nEND\r\n" % (len(value), value)
        wire.store(b"huge", b"x" * 400_000)
        assert ask_by_udp(port, 6, b"get huge\r\n") == b"SERVER_ERROR response too large for UDP\r\n"
        assert int(statistics(wire)["udp_requests"]) >= 6


def test_udp_refuses_requests_in_several_datagrams_and_counts_what_it_drops(machine: NeapServer) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client, machine.connect() as wire:
        client.settimeout(20)
        dropped = int(statistics(wire)["udp_dropped"])
        client.sendto(b"get a\r\n", machine.address)
        client.sendto(struct.pack(">HHHH", 8, 0, 1, 0) + b"set a 0 0 5\r\nabc", machine.address)
        client.sendto(struct.pack(">HHHH", 9, 0, 2, 0) + b"get a\r\n", machine.address)
        assert client.recv(2000) == struct.pack(">HHHH", 9, 0, 1, 0) + b"SERVER_ERROR multi-packet request not supported\r\n"
        assert int(statistics(wire)["udp_dropped"]) == dropped + 2


def test_silent_clients_are_closed_and_others_are_not() -> None:
    words = [f"idle_timeout={IDLE_SECONDS}", "conn-limit-peer=3", "enable-shutdown=on"]
    with NeapServer(memory="256M", arguments=words) as server:
        with server.connect() as active, server.connect() as silent, server.connect() as uploading:
            silent.ask_line(b"version\r\n")
            uploading.send(b"set a 0 0 10\r\n")
            with server.connect() as fourth:
                assert fourth.read_line() == REFUSED
            end = time.monotonic() + 10 * IDLE_SECONDS
            while statistics(active)["idle_kicks"] != "2":
                assert time.monotonic() < end
                time.sleep(0.3)
            for ended in (silent, uploading):
                with pytest.raises(Closed):
                    ended.read_line()
        with server.connect() as wire:
            wire.send(b"shutdown\r\n")
            assert server.machine.wait_exit(20) == SUCCESS
