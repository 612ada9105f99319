# SPDX-License-Identifier: BSL-1.0
"""The client of request_cards.py: GETs on many connections at once, in a network namespace of its own. It uses only the standard library.

    burst_client.py HOST PORT CONNECTIONS KEY_BYTES VALUE_BYTES

A line on standard input starts a burst: a GET leaves on each connection. The client then prints `sent`, and after the last reply `done`.
It ends with its input, and with an error after a wrong reply or ten seconds without one.
"""

import socket
import sys

REPLY_SECONDS = 10.0


def main() -> None:
    host, port, connections, key_bytes, value_bytes = sys.argv[1], *(int(word) for word in sys.argv[2:])
    key, value = b"k" * key_bytes, b"v" * value_bytes
    reply = b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, value_bytes, value)
    sockets = []
    for _ in range(connections):
        one = socket.create_connection((host, port), REPLY_SECONDS)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sockets.append(one)
        # A listener with a backlog of one, such as QEMU's user network, drops connections that come at once.
        exchange(one, b"set %s 0 0 %d\r\n%s\r\n" % (key, value_bytes, value), b"STORED\r\n")
    print("ready", flush=True)
    for _ in sys.stdin:
        for one in sockets:
            one.sendall(b"get %s\r\n" % key)
        print("sent", flush=True)
        for one in sockets:
            exchange(one, b"", reply)
        print("done", flush=True)


def exchange(connection: socket.socket, request: bytes, reply: bytes) -> None:
    connection.sendall(request)
    got = b""
    while len(got) < len(reply):
        piece = connection.recv(1 << 16)
        got += piece
        if not piece or not reply.startswith(got):
            sys.exit(f"a wrong reply: {got[:80]!r}")


if __name__ == "__main__":
    main()
