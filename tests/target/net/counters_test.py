# SPDX-License-Identifier: BSL-1.0
"""apps/counters on the soft card: each client sees the changes of others, on any core.

The command `wait` ends with a change, with a time-out, or when its connection ends.
"""

import socket
import time

from tests.target.images import image_path
from tests.target.net import served
from tests.target.net.served import ANSWER_SECONDS
from tools.control_client import fields_of

IMAGE = image_path("counters")
CORES = 3


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._lines = self.socket.makefile("r")

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode() + b"\n")

    def line(self) -> str:
        return self._lines.readline().rstrip("\n")

    def ask(self, text: str) -> str:
        self.send(text)
        return self.line()

    def close(self) -> None:
        self._lines.close()
        self.socket.close()


def booted():
    return served.booted(IMAGE, 7008, CORES)


def test_clients_on_all_cores_share_the_counters():
    with booted() as run:
        clients = [Client(run.port) for _ in range(12)]
        for i in range(60):
            assert clients[i % len(clients)].ask("add apples") == str(i + 1)
        assert clients[0].ask("get apples") == "60"
        assert clients[1].ask("remove apples") == "removed"
        assert [client.ask("get apples") for client in clients] == ["none"] * len(clients)
        assert clients[2].ask("remove apples") == "none"
        assert clients[2].ask("list") == ""
        assert clients[3].ask("add apples") == "1", "a removed counter begins anew"
        # Lines that arrive together are answered in order.
        clients[0].send("add a\nadd a\nget a\nfrob a")
        assert [clients[0].line() for _ in range(4)] == ["1", "2", "2", "error: add, get, remove, list or wait"]
        assert clients[0].ask("get") == "error: give 1 to 16 names"
        assert sorted(clients[0].ask("list").split()) == ["a", "apples"]
        requests = [core.get("counters.requests", 0) for core in run.counters()]
        assert sum(requests) == 60 + len(clients) + 11
        assert sum(count > 0 for count in requests) > 1, f"one core served all: {requests}"


def test_waits_end_by_a_change_a_time_out_or_the_end_of_the_connection():
    with booted() as run:
        waiting, changing, leaving = Client(run.port), Client(run.port), Client(run.port)
        assert changing.ask("add one") == "1"
        leaving.send("wait never")
        waiting.send("wait one two\nget one")
        time.sleep(0.2)
        leaving.close()
        assert changing.ask("add one") == "2"
        time.sleep(0.2)
        assert changing.ask("add two") == "1"
        assert waiting.line() == "2 1", "the values when both had changed"
        assert waiting.line() == "2", "the next line is answered after the wait"
        begin = time.monotonic()
        assert waiting.ask("wait one three") == "timeout"
        assert 4 < time.monotonic() - begin < ANSWER_SECONDS
        assert waiting.ask("get one") == "2"
        assert "counters.requests_last_second" in fields_of(run.ask("stats")[0])
