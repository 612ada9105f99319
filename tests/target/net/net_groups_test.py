# SPDX-License-Identifier: BSL-1.0
"""Multicast groups on the soft card. The peer is the host's kernel in a namespace, which sends to groups and observes IGMP."""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from linux_guest.namespace import TAP, Namespace

from tests.target.images import SOFT_CARD, image_path
from tools.machine import Machine
from tools.process import kill_session, spawn

IMAGE = image_path("net/net_groups")
HOST, GUEST, PORT = "10.0.3.1", "10.0.3.2", 9000
START_SECONDS = 60
# Datagrams may be lost, so each is repeated until it is answered.
PATIENCE_SECONDS, AGAIN_SECONDS = 60, 2
GROUP, NEVER_JOINED, OTHER = "239.1.2.3", "239.1.2.4", "239.7.7.7"
REPORT, LEAVE = "16", "17"

# Sends input lines "ADDRESS TEXT" as datagrams and "query" as IGMP's general query (RFC 2236). Prints received answers and IGMP messages.
STATION = """
import os, select, socket, sys
device, own, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((own, 0))
udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
wire.bind((device, 0))
mac = wire.getsockname()[4]
igmp = bytes.fromhex("1114eeeb00000000")  # general query, to be answered within 2 s
header = bytes.fromhex("460000200000000001020000") + socket.inet_aton(own) + socket.inet_aton("224.0.0.1") + bytes.fromhex("94040000")
total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 24, 2))
checksum = 0xFFFF - (total % 0xFFFF)
query = bytes.fromhex("01005e000001") + mac + b"\\x08\\x00" + header[:10] + checksum.to_bytes(2, "big") + header[12:] + igmp
waiting = b""
print("ready", flush=True)
while True:
    for ready in select.select([0, udp, wire], [], [])[0]:
        if ready == 0:
            waiting += os.read(0, 65536) or sys.exit()
            *lines, waiting = waiting.split(b"\\n")
            for line in lines:
                if line == b"query":
                    wire.send(query)
                else:
                    address, text = line.split(b" ", 1)
                    udp.sendto(text, (address.decode(), port))
        elif ready is udp:
            print(udp.recv(2048).decode(), flush=True)
        else:
            frame = wire.recv(2048)
            l4 = 14 + (frame[14] & 15) * 4
            if frame[23] == 2 and frame[26:30] != socket.inet_aton(own):
                print("igmp", frame[l4 : l4 + 1].hex(), socket.inet_ntoa(frame[l4 + 4 : l4 + 8]), flush=True)
"""


class Station:
    """The card's peer: the program STATION in the namespace."""

    def __init__(self, namespace: Namespace) -> None:
        argv = namespace.inside([sys.executable, "-c", STATION, TAP, HOST, str(PORT)])
        self._process = spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._arrived: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.seen: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.wait("ready", lambda: None)

    def _read(self) -> None:
        for line in self._process.stdout:
            self._arrived.put(line.decode().rstrip())

    def close(self) -> None:
        kill_session(self._process)

    def say(self, line: str) -> None:
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def wait(self, start: str, again: Callable[[], None]) -> str:
        """Calls `again` every AGAIN_SECONDS until a line that begins with `start` arrives; returns the line."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            again()
            quiet = time.monotonic() + AGAIN_SECONDS
            while (left := quiet - time.monotonic()) > 0:
                try:
                    line = self._arrived.get(timeout=left)
                except queue.Empty:
                    break
                self.seen.append(line)
                if line.startswith(start):
                    return line
        raise AssertionError(f"no {start!r}; the last lines: {self.seen[-20:]}")

    def ask(self, text: str) -> None:
        """Requests an action of the image. If the first answer was lost, the image may already have done the action."""
        answer = self.wait(f"{text}: ", lambda: self.say(f"{GUEST} {text}"))
        assert answer.endswith((": ok", "joined the group already", "has not joined the group")), answer

    def reaches(self, group: str, text: str, core: int) -> None:
        assert self.wait(f"core {core}: {text}", lambda: self.say(f"{group} {text}"))


def test_groups_are_joined_and_left_and_survive_a_reset_of_the_card() -> None:
    with (
        Namespace(f"{HOST}/24") as namespace,
        Machine(IMAGE, cores=2, arguments=[f"ip={GUEST}/24"], net=f"tap:{TAP}", soft_card=namespace.program(SOFT_CARD)) as machine,
    ):
        machine.wait_for_line("net_groups: ready", START_SECONDS)
        station = Station(namespace)
        try:
            station.ask(f"join 0 {OTHER}")
            station.ask(f"join 1 {GROUP}")
            if f"igmp {REPORT} {GROUP}" not in station.seen:
                station.wait(f"igmp {REPORT} {GROUP}", lambda: None)
            station.reaches(GROUP, "hello", 1)
            station.say(f"{NEVER_JOINED} unjoined")
            station.reaches(OTHER, "marker", 0)
            # The card can compare only some groups exactly. It selects the datagrams of the others, such as the last of these 130, by a
            # hash.
            station.ask("many 0 130")
            for last in (1, 126, 130):
                station.reaches(f"239.3.0.{last}", f"many {last}", 0)
            station.wait(f"igmp {REPORT} {GROUP}", lambda: station.say("query"))
            assert machine.card_command("violations")["total"] == 0
            start = len(machine.lines)
            machine.card_command("fault ecc")
            machine.wait_for_line("ixgbe: card reset", PATIENCE_SECONDS, start)
            station.reaches(GROUP, "after the reset", 1)
            station.reaches("239.3.0.130", "hashed as before", 0)
            station.ask(f"leave 1 {GROUP}")
            if f"igmp {LEAVE} {GROUP}" not in station.seen:
                station.wait(f"igmp {LEAVE} {GROUP}", lambda: None)
            station.say(f"{GROUP} left")
            station.reaches(OTHER, "the end", 0)
            assert not [line for line in station.seen if "unjoined" in line or "left" in line and line.startswith("core")]
            assert not [line for line in station.seen if line.startswith("core 0") and ("hello" in line or "after the reset" in line)]
        finally:
            station.close()
