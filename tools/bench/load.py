# SPDX-License-Identifier: BSL-1.0
"""A process that keeps a memcached busy with pipelined gets, and counts the answers.

    python -m tools.bench.load HOST PORT CONNECTIONS DEPTH

It is one process with one loop, because the machine also emulates the server. Each connection always has DEPTH requests in flight. Answers
have a known length and are compared as a whole. The process begins to send at once. For each input line it prints the number of answers so
far. It ends at the end of its input.
"""

import selectors
import socket
import sys
import time

# Pause between two connections, because QEMU's user network listens with a backlog of one.
CONNECT_PAUSE_SECONDS = 0.01
CONNECT_SECONDS = 20.0
SILENCE_SECONDS = 30.0
KEY = b"stream-load"
VALUE = b"v" * 100
REQUEST = b"get %s\r\n" % KEY
ANSWER = b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (KEY, len(VALUE), VALUE)


class Connection:
    """A connection that sends a new request for each answer."""

    def __init__(self, address: tuple[str, int], depth: int) -> None:
        self.socket = socket.create_connection(address, CONNECT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._depth = depth
        self._received = bytearray()
        time.sleep(CONNECT_PAUSE_SECONDS)

    def store(self) -> None:
        self.socket.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (KEY, len(VALUE), VALUE))
        if self.socket.recv(100) != b"STORED\r\n":
            raise SystemExit("load: the value was not stored")

    def begin(self) -> None:
        self.socket.sendall(REQUEST * self._depth)

    def answers(self) -> int:
        """Returns the number of answers since the last call, and sends a new request for each of them."""
        data = self.socket.recv(1 << 18)
        if not data:
            raise SystemExit("load: the server ended a connection")
        self._received += data
        count, rest = divmod(len(self._received), len(ANSWER))
        if count:
            if self._received[: count * len(ANSWER)] != ANSWER * count:
                raise SystemExit("load: a wrong answer")
            del self._received[: count * len(ANSWER)]
            # The requests in flight fill only a small part of the server's receive window, so `sendall` never blocks for long.
            self.socket.sendall(REQUEST * count)
        return count


def main(host: str, port: str, connections: str, depth: str) -> None:
    wires = [Connection((host, int(port)), int(depth)) for _ in range(int(connections))]
    wires[0].store()
    total = 0
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for wire in wires:
            selector.register(wire.socket, selectors.EVENT_READ, wire)
            wire.begin()
        while True:
            ready = selector.select(SILENCE_SECONDS)
            if not ready:
                raise SystemExit(f"load: nothing came for {SILENCE_SECONDS:.0f} s")
            for key, _ in ready:
                if key.data is not None:
                    total += key.data.answers()
                elif sys.stdin.readline():
                    print(total, flush=True)
                else:
                    return


if __name__ == "__main__":
    main(*sys.argv[1:])
