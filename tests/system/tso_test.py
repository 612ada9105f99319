# SPDX-License-Identifier: BSL-1.0
"""TSO while megabytes flow to the host's kernel: with each value of the setting `tso`, while `tso` changes, and with lost frames."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from linux_guest.namespace import TAP, Namespace

from tools import build
from tools.control_client import fields_of
from tools.machine import SOFT_CARD, Machine
from tools.process import kill_session, output_of, spawn, wait_until

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]

HOST, IMAGE = "10.0.8.1", "10.0.8.2"
START_SECONDS = 60
PATIENCE_SECONDS = 200
# A round transfers a million bytes: two connections, each with half a million.
ROUNDS = 5
CHANGING_ROUNDS = 50
LOSSY_ROUNDS = 2
FORMS = ("off", "copy", "chain")
NEAP = [sys.executable, str(build.REPOSITORY / "neap")]

# memcached's text protocol: two connections get a large value for each input line, and every byte is compared.
STREAM = """
import random, socket, sys
def read(connection, expected):
    got = bytearray()
    while len(got) < len(expected):
        got += connection.recv(1 << 16) or sys.exit("closed too early")
    assert got == expected
value = random.Random(8).randbytes(500_000)
answer = b"VALUE large 0 %d\\r\\n%s\\r\\nEND\\r\\n" % (len(value), value)
connections = [socket.create_connection((sys.argv[1], 11211), 100) for _ in range(2)]
connections[0].sendall(b"set large 0 0 %d\\r\\n%s\\r\\n" % (len(value), value))
read(connections[0], b"STORED\\r\\n")
for _ in sys.stdin:
    for connection in connections:
        connection.sendall(b"get large\\r\\n")
    for connection in connections:
        read(connection, answer)
    print("same", flush=True)
"""


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with Namespace(f"{HOST}/24") as made:
        yield made


def ask_control(namespace: Namespace, *lines: str) -> list[str]:
    """Returns the answers of the machine's control without `ok`, with which each answer must begin."""
    printed = output_of(namespace.inside([*NEAP, "ctl", IMAGE, *lines]), timeout_seconds=PATIENCE_SECONDS).splitlines()
    answers = [line for line in printed if not line.startswith("> ")]
    assert len(answers) == len(lines) and all(answer.startswith("ok ") for answer in answers), answers
    return [answer.removeprefix("ok ") for answer in answers]


class Stream(contextlib.AbstractContextManager):
    """The process that gets large values. A context manager."""

    def __init__(self, namespace: Namespace) -> None:
        argv = namespace.inside([sys.executable, "-c", STREAM, IMAGE])
        self._process = spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def __exit__(self, *_error: object) -> None:
        kill_session(self._process)

    def ask(self, rounds: int) -> None:
        self._process.stdin.write(b"\n" * rounds)
        self._process.stdin.flush()

    def got(self, rounds: int) -> None:
        """Waits until this many rounds have arrived. The process ends if no more data arrives."""
        for _ in range(rounds):
            line = self._process.stdout.readline()
            assert line == b"same\n", (line + self._process.stdout.read()).decode()

    def flow(self, rounds: int) -> None:
        self.ask(rounds)
        self.got(rounds)


def grown(before: Sequence[str], after: Sequence[str]) -> dict[str, int]:
    """Returns the growth of counters between two answers to `stats`."""
    then, now = fields_of(before[0]), fields_of(after[0])
    return {name: int(value) - int(then[name]) for name, value in now.items() if value.isdecimal() and name in then}


def sent_as_counted(namespace: Namespace) -> bool:
    counts = fields_of(ask_control(namespace, "stats")[0])
    return all(counts[f"net.{what}_sent"] == counts[f"ixgbe.tx.{what}"] for what in ("frames", "bytes"))


def test_every_byte_arrives_in_every_form_and_through_every_change(namespace: Namespace) -> None:
    card = namespace.program(SOFT_CARD)
    image = build.image("memcached", "image")
    with Machine(image, cores=2, memory="512M", arguments=[f"ip={IMAGE}/24"], net=f"tap:{TAP}", soft_card=card) as machine:
        machine.wait_for_line("memcached: listening on", START_SECONDS)
        with Stream(namespace) as stream:
            stream.flow(1)
            descriptors_a_frame = {}
            for form in FORMS:
                assert ask_control(namespace, f"tso,{form}")[0].startswith(f"tso={form} generation=")
                before, reads = ask_control(namespace, "stats"), machine.card_counters()["reads"]
                stream.flow(ROUNDS)
                assert machine.card_counters()["reads"] == reads, "a register was read"
                counts = grown(before, ask_control(namespace, "stats"))
                assert (counts["net.joined_frames"] > 0) == (form != "off"), counts
                assert (counts["net.joined_copied_bytes"] > 0) == (form == "copy"), counts
                descriptors_a_frame[form] = counts["ixgbe.tx.descriptors"] / counts["ixgbe.tx.frames"]
                print(f"{form}: {counts['ixgbe.tx.frames']} frames, {descriptors_a_frame[form]:.2f} descriptors each,", end=" ")
                print(f"{counts['net.joined_segments'] / max(1, counts['net.joined_frames']):.1f} segments a joined frame")
            assert descriptors_a_frame["off"] > 1.5 * descriptors_a_frame["chain"]
            assert descriptors_a_frame["off"] > 1.5 * descriptors_a_frame["copy"]

            changes = [f"tso,{form}" for form in (*FORMS, "copy", "off", "chain")]
            stream.ask(CHANGING_ROUNDS)
            for _ in range(3):
                ask_control(namespace, *changes)
            stream.got(CHANGING_ROUNDS)

            before = ask_control(namespace, "stats")
            machine.card_command("fault drop tx chance 0.01")
            for change in changes:
                ask_control(namespace, change)
                stream.flow(LOSSY_ROUNDS)
            stream.ask(LOSSY_ROUNDS)
            ask_control(namespace, *changes)
            stream.got(LOSSY_ROUNDS)
            machine.card_command("fault off")
            assert grown(before, ask_control(namespace, "stats"))["net.retransmissions"] > 0, "nothing was lost"

            assert ask_control(namespace, "preset,study", "policy,0")[1].count(" tso=copy ") == 1
            stream.flow(1)
        # When nothing is in flight, the network's count of frames equals the card's count of segments.
        assert wait_until(lambda: sent_as_counted(namespace), PATIENCE_SECONDS)
        assert machine.card_command("violations")["total"] == 0
