# SPDX-License-Identifier: BSL-1.0
"""A booted image with a service and control, both forwarded. At the end, control switches the machine off."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.target.images import SOFT_CARD
from tools import control_client
from tools.machine import LOOPBACK, SUCCESS, Machine

CONTROL_PORT = 5002
START_SECONDS = 60
ANSWER_SECONDS = 20


class Served:
    """`port` of this host reaches the service."""

    def __init__(self, machine: Machine, guest_port: int) -> None:
        self.machine = machine
        self.port = machine.port(guest_port)

    def ask(self, *lines: str) -> list[str]:
        """Returns control's answers to `lines`, on a new connection."""
        with control_client.Control(LOOPBACK, self.machine.port(CONTROL_PORT)) as connection:
            return [connection.ask(line) for line in lines]

    def counters(self) -> list[dict[str, int]]:
        answers = self.ask(*(f"stats,{core}" for core in range(self.machine.cores)))
        return [{name: int(value) for name, value in control_client.fields_of(answer).items()} for answer in answers]


@contextmanager
def booted(image: Path, guest_port: int, cores: int = 1, words: str = "") -> Iterator[Served]:
    forward = [(0, guest_port), (0, CONTROL_PORT)]
    with Machine(image, cores=cores, memory="512M", arguments=words.split(), forward=forward, soft_card=SOFT_CARD) as machine:
        machine.wait_for_line(f"^{image.stem}: listening", START_SECONDS)
        served = Served(machine, guest_port)
        yield served
        assert served.ask("poweroff") == ["ok"]
        assert machine.wait_exit(ANSWER_SECONDS) == SUCCESS, "\n".join(machine.lines)
