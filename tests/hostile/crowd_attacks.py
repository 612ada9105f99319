# SPDX-License-Identifier: BSL-1.0
"""Many clients of memcached at once. Each attack has a small size for the tests, and a subclass with the full size for `./neap soak crowd`.

`bounds` returns the documented limit of each counter that the attack strains. The scene reads the counters all the time, and no sample may
exceed a limit.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hostile.attack import CONNECT_SECONDS, MEMCACHED, PAUSE_SECONDS, SMALLEST_RECEIVE_BUFFER, Attack, client, reset, store
from hostile.frames import ACK, FIN
from tools.process import wait_until

if TYPE_CHECKING:
    from hostile.raw_peer import RawConnection
    from hostile.scene import Scene

MIB = 1 << 20
REFUSED = b"ERROR Too many open connections\r\n"
SETTLE_SECONDS = 60.0
# A reply's cost (session.hpp): a quarter of its bytes, and 384 bytes for each piece. A value of 1 MiB is sent in pieces of up to 256 KiB.
LARGE_REPLY_BYTES = MIB // 4 + 8 * 384
# ReplyAccount reports in steps, and leaves a part of each core's bytes unreported (reply_memory.hpp).
REPLY_STEP_BYTES = 64 << 10


def ask(connection: socket.socket, request: bytes, end: bytes) -> bytes:
    """Sends the request and returns the reply, which ends with `end`. Raises OSError if the connection ends."""
    connection.settimeout(CONNECT_SECONDS)
    connection.sendall(request)
    reply = b""
    while not reply.endswith(end):
        more = connection.recv(1 << 16)
        if not more:
            raise ConnectionResetError(f"the connection ended after {reply[-100:]!r}")
        reply += more
    return reply


def statistics(connection: socket.socket) -> dict[str, int]:
    """Returns the numbers of memcached's `stats`."""
    words = (line.split() for line in ask(connection, b"stats\r\n", b"END\r\n").decode().splitlines())
    return {parts[1]: int(parts[2]) for parts in words if len(parts) == 3 and parts[2].isdecimal()}


class Crowd(Attack):
    """Thousands of connections are open at once. Each is served in turn, while others open and close. Further ones are refused."""

    row = 13
    count = 300
    # Connections of the bystander, the newcomers and the churn.
    reserve = 60
    batch = 20
    value_bytes = 20
    # An idle connection, its item, and its share of the table.
    limit_bytes = 300 * 2048
    words = ("memory=64M", f"conn-limit={300 + 60}")

    def prepare(self) -> None:
        self.level_bytes = self.scene.numbers("stats")["memory.heap_used_bytes"]

    def begin(self) -> None:
        self.served = [0] * self.count
        self.wrong = self.churned = self._next = 0
        self.beyond: dict[str, int] = {}
        self._chance = random.Random(13)
        while len(self.connections) < self.count:
            self.connections += self._open(min(100, self.count - len(self.connections)))

    def bounds(self, _stats: dict[str, int]) -> dict[str, int]:
        return {"memcached.curr_connections": self.count + self.reserve}

    def _open(self, count: int) -> list[socket.socket]:
        """Opens connections, all at the same time."""
        opened = []
        for _ in range(count):
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALLEST_RECEIVE_BUFFER)
            made.setblocking(False)
            made.connect_ex((self.scene.address, MEMCACHED))
            opened.append(made)
        _wait(opened, select.POLLOUT)
        for made in opened:
            if error := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(error, "a connection was not made")
        return opened

    def press(self) -> None:
        self._serve()
        for resets in (True, False):
            at = self._chance.randrange(self.count)
            if self.served[at] == 0:
                continue
            (reset if resets else socket.socket.close)(self.connections[at])
            self.connections[at] = client(self.scene)
            self.churned += 1
        time.sleep(PAUSE_SECONDS)

    def _serve(self) -> None:
        """Sends a set and a get on the next connections, and checks the replies."""
        numbers = [at % self.count for at in range(self._next, self._next + self.batch)]
        self._next += self.batch
        expected = {}
        for at in numbers:
            value = b"%0*d" % (self.value_bytes, self._chance.randrange(10**9))
            self.connections[at].setblocking(False)
            self.connections[at].send(b"set crowd-%d 0 0 %d\r\n%s\r\nget crowd-%d\r\n" % (at, len(value), value, at))
            expected[at] = b"STORED\r\nVALUE crowd-%d 0 %d\r\n%s\r\nEND\r\n" % (at, len(value), value)
        for at, wanted in expected.items():
            self.connections[at].settimeout(CONNECT_SECONDS)
            got = b""
            while len(got) < len(wanted) and (more := self.connections[at].recv(len(wanted) - len(got))):
                got += more
            self.wrong += got != wanted
            self.served[at] += got == wanted

    def after_load(self) -> None:
        """Serves the remaining connections, then opens more than are allowed."""
        deadline = time.monotonic() + 10 * SETTLE_SECONDS
        while min(self.served) == 0 and time.monotonic() < deadline:
            self._serve()
        with contextlib.closing(client(self.scene)) as asking:
            wait_until(lambda: statistics(asking)["curr_connections"] == self.count + 1, SETTLE_SECONDS, 0.5)
            shown = statistics(asking)
            grown = self.scene.numbers("stats")["memory.heap_used_bytes"] - self.level_bytes
            self.beyond = {"wrong_curr_connections": abs(shown["curr_connections"] - self.count - 1)}
            self.measured |= {"bytes of an idle connection": (grown - shown["bytes"]) // self.count, "closed and opened": self.churned}
            further = [self._open(1)[0] for _ in range(self.reserve + 20)]
            _wait(further[self.reserve - 1 :], select.POLLIN)
            refused, admitted = further[self.reserve - 1 :], further[: self.reserve - 1]
            self.beyond["not_refused"] = sum(_all(connection) != REFUSED for connection in refused)
            self.beyond["not_admitted"] = sum(not ask(one, b"version\r\n", b"\r\n").startswith(b"VERSION ") for one in admitted)
            shown = statistics(asking)
            self.beyond["wrong_at_limit"] = abs(shown["curr_connections"] - shown["max_connections"])
            self.measured["refused beyond the limit"] = len(refused)
            for connection in further:
                connection.close()
            wait_until(lambda: statistics(asking)["curr_connections"] == self.count + 1, SETTLE_SECONDS, 0.5)
            again = self._open(10)
            self.beyond["not_admitted_again"] = sum(not ask(one, b"version\r\n", b"\r\n").startswith(b"VERSION ") for one in again)
            for connection in again:
                reset(connection)

    def end(self) -> None:
        # In order, because a RST is not sent again if the card drops it in such a burst.
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        delete_keys(self.scene, (b"crowd-%d" % at for at in range(self.count)))

    def findings(self) -> dict[str, int]:
        return {"unserved": self.served.count(0), "wrong_replies": self.wrong, "without_churn": int(self.churned == 0), **self.beyond}


class FullCrowd(Crowd):
    count = 10_000
    reserve = 100
    limit_bytes = 10_000 * 2048
    words = ("memory=64M", "conn-limit=10100")
    memory = "1G"
    seconds_min = 60.0


def _wait(connections: Sequence[socket.socket], event: int) -> None:
    """Waits until each connection has `event`. Raises TimeoutError."""
    poll = select.poll()
    waiting = {connection.fileno() for connection in connections}
    for number in waiting:
        poll.register(number, event)
    deadline = time.monotonic() + CONNECT_SECONDS
    while waiting:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(waiting)} of {len(connections)} connections wait")
        for number, _ in poll.poll(1000):
            poll.unregister(number)
            waiting.discard(number)


def _all(connection: socket.socket) -> bytes:
    """Returns the bytes up to the end of the connection."""
    connection.settimeout(CONNECT_SECONDS)
    got = b""
    while more := connection.recv(1000):
        got += more
    return got


def delete_keys(scene: Scene, keys: Iterator[bytes]) -> None:
    with contextlib.closing(client(scene)) as other:
        requests = [b"delete %s noreply\r\n" % key for key in keys]
        for first in range(0, len(requests), 1000):
            ask(other, b"".join(requests[first : first + 1000]) + b"version\r\n", b"\r\n")


class LargeReaders(Attack):
    """Clients pipeline gets of values of 1 MiB, and read nothing, or some bytes a second. Meanwhile the values are replaced."""

    row = 14
    count = 24
    values = 4
    pipeline = 4
    memory_bytes = 64 * MIB
    words = ("memory=64M",)
    limit_bytes = 64 * MIB
    press_seconds = 0.1
    may_miss = True  # the values that replies hold make the cache smaller

    def begin(self) -> None:
        self.keys = [b"large-%d" % at for at in range(self.values)]
        self._writer = client(self.scene)
        for key in self.keys:
            store(self._writer, key, key[-1:] * MIB)
        self._next = self.ended = self.refused = 0
        self.connections = [self._reader(at) for at in range(self.count)]

    def _reader(self, at: int) -> socket.socket:
        made = client(self.scene, reads=False)
        made.sendall(b"".join(b"get %s\r\n" % self.keys[(at + step) % self.values] for step in range(self.pipeline)))
        made.setblocking(False)
        return made

    def _replace(self, at: int) -> None:
        reset(self.connections[at])
        self.connections[at] = self._reader(at)

    def press(self) -> None:
        self._next += 1
        # Every second client reads nothing, and does not learn that it was reset. So each time one of them is replaced.
        for at in range(self._next % 4 & 2, self.count, 4):
            try:
                ended = not self.connections[at].recv(16)
            except BlockingIOError:
                continue
            except OSError:
                ended = True
            if ended:
                self.ended += 1
                self._replace(at)
        self._replace((2 * self._next + 1) % self.count)
        self._writer.settimeout(CONNECT_SECONDS)
        key = self.keys[self._next % self.values]
        self.refused += ask(self._writer, b"set %s 0 0 %d\r\n%s\r\n" % (key, MIB, key[-1:] * MIB), b"\r\n") != b"STORED\r\n"
        time.sleep(self.press_seconds)

    def bounds(self, stats: dict[str, int]) -> dict[str, int]:
        cores = self.scene.cores
        return {
            # An eighth of `memory=`, and one reply of each connection.
            "memcached.reply_bytes": stats["memcached.reply_limit_bytes"] + self.count * LARGE_REPLY_BYTES + cores * REPLY_STEP_BYTES,
            # Replies take half of the memory at most, and values that only replies hold half of the rest. Each core may exceed that by a
            # value.
            "memcached.held_bytes": self.memory_bytes * 3 // 4 + cores * MIB,
            "memcached.retired_bytes": retired_bound(self.memory_bytes, cores, MIB),
            "memcached.reply_spare_bytes": cores * (256 << 10),
        }

    def end(self) -> None:
        super().end()
        reset(self._writer)
        self.measured |= {"readers that were reset": self.ended, "readers that left": self._next, "sets refused": self.refused}


def retired_bound(memory_bytes: int, cores: int, item_bytes: int) -> int:
    """Returns the bound of items that wait for their grace period (docs/caveats.md). It is a sixteenth of the memory, at most 1 MiB for
    each core, and one item for each core."""
    return min(memory_bytes // 16, cores * MIB) + cores * (item_bytes + 1024)


class FullLargeReaders(LargeReaders):
    count = 200
    values = 16
    seconds_min = 60.0


class VanishingClients(Attack):
    """Clients vanish in the middle of a request or a reply: by a RST, by a FIN, or in silence, after which no frame of theirs arrives."""

    row = 15
    count = 150
    silent_max = 60
    idle_seconds = 5
    memory_bytes = 64 * MIB
    words = ("memory=64M", "idle_timeout=5")
    limit_bytes = 64 * MIB
    keys = (b"vanish", b"vanish-large")
    upload_bytes = 900_000
    large_bytes = 100_000
    modes: Sequence[str] = ("rst", "fin", "silence")
    segment_bytes = 1400

    def _requests(self) -> list[tuple[str, bytes]]:
        """Returns requests that are not complete, or whose replies are not read."""
        half = b"v" * 30_000
        head = struct.pack("!BBHBBHIIQ", 0x80, 0x01, 6, 8, 0, 0, 6 + 8 + self.upload_bytes, 0, 0)
        return [
            ("command line", b"get vanish vani"),
            ("long command line", b"get " + b"vanish " * 200),
            ("value", b"set upload 0 0 %d\r\n%s" % (self.upload_bytes, half)),
            ("binary header", head[:13]),
            ("binary key", head + bytes(8) + b"up"),
            ("binary value", head + bytes(8) + b"upload" + half),
            ("multi-get reply", b"get " + b"vanish-large " * 6 + b"\r\n"),
            ("replies in a pipeline", b"get vanish vanish vanish\r\n" * 50),
            ("meta line", b"mg vanish t h v O12"),
            ("meta value", b"ms upload %d T0 I q\r\n%s" % (self.upload_bytes, half)),
            ("meta replies", b"mg vanish k v t s\r\n" * 50),
            ("quiet pipeline", b"mg missing v q\r\n" * 20 + b"m"),
        ]

    def begin(self) -> None:
        with contextlib.closing(client(self.scene)) as other:
            store(other, b"vanish", b"v" * 1000)
            store(other, b"vanish-large", b"V" * self.large_bytes)
        self._sent = self.unopened = 0
        self._plans = self._requests()
        self._silent: list[tuple[float, RawConnection]] = []

    def press(self) -> None:
        if self._sent >= self.count:
            return super().press()
        now = time.monotonic()
        # The server resets silent clients after their time-out. More of them at once would only wait.
        while self._silent and now - self._silent[0][0] > 2 * self.idle_seconds:
            self._silent.pop(0)
        peer = self.scene.peer
        number, self._sent = self._sent, self._sent + 1
        what, request = self._plans[number % len(self._plans)]
        mode = self.modes[number // len(self._plans) % len(self.modes)]
        if mode == "silence" and len(self._silent) >= self.silent_max:
            mode = "rst"
        try:
            connection = peer.connect((self.scene.foreign_address(number % 64), 20_000 + number), MEMCACHED)
        except TimeoutError:
            self.unopened += 1
            return None
        connection.acknowledges = "repl" not in what
        for first in range(0, len(request), self.segment_bytes):
            connection.send(request[first : first + self.segment_bytes])
        peer.poll(PAUSE_SECONDS)
        if mode == "rst":
            connection.reset()
        elif mode in ("fin", "fin_and_silence"):
            connection.send_flags(FIN | ACK)
            connection.next_sequence += 1
            connection.acknowledges = mode == "fin"
        if mode == "fin":
            peer.poll(PAUSE_SECONDS)
            self.raw.append(connection)  # reset at the end, as a kernel resets a closed connection when data arrive
        else:
            connection.acknowledges = False
            self._silent.append((now, connection))
        self.measured[f"vanished by {mode}"] = self.measured.get(f"vanished by {mode}", 0) + 1
        return None

    def after_load(self) -> None:
        while self._sent < self.count:
            self.press()

    def bounds(self, stats: dict[str, int]) -> dict[str, int]:
        cores = self.scene.cores
        return {
            # A quarter of the memory, and for each core the upload that reached it.
            "memcached.upload_bytes": self.memory_bytes // 4 + cores * (self.upload_bytes + 1024),
            # An eighth of the memory, and one large value of each client that does not read.
            "memcached.reply_bytes": stats["memcached.reply_limit_bytes"] + self.silent_max * (self.large_bytes // 4 + 1024),
            "memcached.held_bytes": self.memory_bytes,
        }

    def findings(self) -> dict[str, int]:
        return {"unopened": self.unopened, "unsent": self.count - self._sent}


class FullVanishingClients(VanishingClients):
    # A client that is silent behind its FIN keeps its connection for a minute (net/connection.cpp).
    modes = (*VanishingClients.modes, "fin_and_silence")
    level_seconds = 100.0
    count = 4_000
    silent_max = 1_000
    seconds_min = 60.0


class FullMemory(Attack):
    """The memory is full, and clients store values of all sizes up to the largest."""

    row = 16
    count = 12
    keys_max = 600
    memory_bytes = 16 * MIB
    words: Sequence[str] = ("memory=16M",)
    load_words: Sequence[str] = ("--value-size", "100")
    # Bytes that the clients send at least, in multiples of the memory.
    turnover = 2
    # Values, slabs that are partly empty, replaced items, and the spare blocks (docs/caveats.md, "Memory beyond `memory=`").
    limit_bytes = 16 * MIB * 3 // 2
    may_miss = True
    answers = (b"STORED\r\n", b"SERVER_ERROR object too large for cache\r\n", b"SERVER_ERROR out of memory storing object\r\n")

    def begin(self) -> None:
        self.connections = [client(self.scene) for _ in range(self.count)]
        self._chance = random.Random(16)
        self._next = self._sent_bytes = self.wrong = 0

    def press(self) -> None:
        connection = self.connections[self._next % self.count]
        self._next += 1
        exponent = self._chance.uniform(0, 20)
        size = MIB + 1 if self._next % 50 == 0 else MIB if self._next % 50 == 1 else round(2**exponent)
        verb = self._chance.choice((b"set", b"set", b"set", b"append", b"add"))
        key = b"full-%d" % self._chance.randrange(self.keys_max)
        got = ask(connection, b"%s %s 0 0 %d\r\n%s\r\n" % (verb, key, size, b"f" * size), b"\r\n")
        self._sent_bytes += size
        known = got in self.answers or (verb != b"set" and got == b"NOT_STORED\r\n")
        self.wrong += not known
        name = got.decode(errors="replace").strip() if known else f"unknown answer {got[:60]!r}"
        self.measured[name] = self.measured.get(name, 0) + 1

    def after_load(self) -> None:
        while self._sent_bytes < self.turnover * self.memory_bytes:
            self.press()
        self.measured["MiB sent"] = self._sent_bytes // MIB

    def bounds(self, stats: dict[str, int]) -> dict[str, int]:
        cores = self.scene.cores
        retired = min(self.memory_bytes // 16, cores * MIB)
        return {
            # Items may be stored before others are evicted for them: three quarters of the limit for replaced items.
            "memcached.bytes": self.memory_bytes + retired * 3 // 4,
            "memcached.retired_bytes": retired_bound(self.memory_bytes, cores, MIB),
            "memcached.upload_bytes": self.memory_bytes // 4 + cores * MIB,
            "memcached.reply_bytes": stats["memcached.reply_limit_bytes"],
        }

    def end(self) -> None:
        super().end()
        delete_keys(self.scene, (b"full-%d" % at for at in range(self.keys_max)))

    def findings(self) -> dict[str, int]:
        return {"unknown_answers": self.wrong, "not_stored": int(not self.measured.get("STORED"))}


class FullMemoryWithoutEviction(FullMemory):
    """As `FullMemory`, but the server refuses to store instead of evicting. The bystander only reads."""

    words = ("memory=16M", "disable-evictions=on")
    load_words = ("--value-size", "100", "--update", "1:0", "--no-preload")
    may_miss = False

    def findings(self) -> dict[str, int]:
        refused = self.measured.get("SERVER_ERROR out of memory storing object", 0)
        return {**super().findings(), "nothing_refused": int(refused == 0)}


class LongFullMemory(FullMemory):
    count = 64
    keys_max = 3000
    turnover = 20
    seconds_min = 60.0


class LongFullMemoryWithoutEviction(FullMemoryWithoutEviction):
    count = 64
    keys_max = 3000
    turnover = 20
    seconds_min = 60.0
