# SPDX-License-Identifier: BSL-1.0
"""The network stack over our driver on the soft card. An independent TCP (QEMU's user network) exchanges data with the echo application
that `./neap new` makes. Every byte is compared, and control gives the counters."""

import random
import select
import socket
import time

import pytest

from tests.target.images import SOFT_CARD, image_path
from tests.target.net import served
from tests.target.net.served import ANSWER_SECONDS, START_SECONDS, Served
from tools.machine import BAD_COMMAND_LINE, LOOPBACK, Machine

IMAGE = image_path("net/net_echo")
RETRANSMISSIONS_MAX = 100  # of the 7,000 segments in 10 MB


def booted(cores: int = 1, words: str = ""):
    return served.booted(IMAGE, 7007, cores, words)


def connect(run: Served) -> socket.socket:
    return socket.create_connection((LOOPBACK, run.port), ANSWER_SECONDS)


def exchange(connections: list[socket.socket], size: int, seed: int) -> None:
    """Sends `size` bytes through all connections at once and compares the echoes."""
    data = [random.Random(seed * 1000 + i).randbytes(size) for i in range(len(connections))]
    sent, back = [0] * len(connections), [bytearray() for _ in connections]
    deadline = time.monotonic() + 120
    for connection in connections:
        connection.setblocking(False)
    while any(len(part) < size for part in back):
        assert time.monotonic() < deadline, f"{sum(map(len, back))} of {size * len(connections)} bytes came back"
        readers = [c for i, c in enumerate(connections) if len(back[i]) < size]
        writers = [c for i, c in enumerate(connections) if sent[i] < size]
        readable, writable, _ = select.select(readers, writers, [], 5)
        for connection in writable:
            i = connections.index(connection)
            sent[i] += connection.send(data[i][sent[i] : sent[i] + 65536])
        for connection in readable:
            i = connections.index(connection)
            part = connection.recv(1 << 18)
            assert part, "closed too early"
            back[i] += part
    for i, part in enumerate(back):
        assert bytes(part) == data[i], f"connection {i}: bytes changed on the way"


@pytest.mark.parametrize("cores", [1, 4])
def test_ten_megabytes_come_back_whole(cores: int):
    with booted(cores) as run:
        with connect(run) as connection:
            exchange([connection], 10_000_000, 1)
        counters = run.counters()
        assert not any(core["net.dropped_checksum"] for core in counters)
        # Nothing is lost on this way, but a busy host may delay an acknowledgement for longer than the retransmission time-out.
        assert sum(core["net.retransmissions"] for core in counters) <= RETRANSMISSIONS_MAX


def test_many_connections_spread_over_the_cores():
    with booted(4) as run:
        connections = []
        for _ in range(100):
            # QEMU's user network listens with a backlog of one. Without this exchange, SYNs are lost, and the host's kernel repeats them a
            # second later.
            connections.append(connect(run))
            connections[-1].sendall(b"x")
            assert connections[-1].recv(1) == b"x"
        for round_ in range(3):
            exchange(connections, 20_000, round_)
        counters = run.counters()
        assert sum(core["net.connections_accepted"] for core in counters) == 100 + 1
        assert all(core["net.connections_accepted"] > 0 for core in counters), "a core accepted no connection"
        for connection in connections:
            connection.close()
        deadline = time.monotonic() + ANSWER_SECONDS
        while sum(core["net.connections_open"] for core in run.counters()) > 2:  # the control connections
            assert time.monotonic() < deadline, "closed connections stay"
            time.sleep(0.2)


def test_half_close_gets_everything_back():
    with booted() as run, connect(run) as connection:
        data = random.Random(8).randbytes(300_000)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        back = b""
        while part := connection.recv(1 << 18):
            back += part
        assert back == data


def test_static_address_serves_without_dhcp():
    with booted(words="ip=10.0.2.15/24,10.0.2.2") as run, connect(run) as connection:
        assert any("net: 10.0.2.15/24 gateway 10.0.2.2 (static), 1 core" in line for line in run.machine.lines)
        exchange([connection], 5_000, 3)


@pytest.mark.parametrize("word", ["ip=10.0.2.15", "ip=10.0.2.15/24,10.0.3.1", "ip=x"])
def test_a_bad_address_stops_the_boot(word: str):
    with Machine(IMAGE, cores=1, memory="512M", arguments=[word], soft_card=SOFT_CARD) as machine:
        assert machine.wait_exit(START_SECONDS) == BAD_COMMAND_LINE
        assert any("ip" in line and "A.B.C.D/LEN" in line for line in machine.lines)
