# SPDX-License-Identifier: BSL-1.0
"""The web server under test: Neap's image with a script or, to check the tests themselves, Node with the same script on loopback.

If Node fails a test, the test requires a property that Node does not have. To find such tests, `pytest tests/system --stock` runs them
with Node. Tests of the machine itself (its counters, its bounds of memory and time) need the image and are left out then.

A script listens on process.env.PORT. A script with several servers uses the ports after it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from http_wire import HttpWire
from servers import CONTROL_SECONDS
from wire import ANSWER_SECONDS

from tools import build, client_programs, web_archive
from tools.control_client import Control, Lost
from tools.errors import Failure
from tools.machine import DEFAULT_CARD, LOOPBACK, SOFT_CARD, Machine, free_port, usual_card
from tools.machine_registry import CONTROL_PORT
from tools.process import spawn, stop, tail, wait_until

SCRIPTS = Path(__file__).with_name("web_scripts")
PORT = 8080
START_SECONDS = 60.0
SETTLE_SECONDS = 45.0
CONTROL_ATTEMPTS = 8
CONNECT_PAUSE_SECONDS = 0.004
# The cores of a busy host may need long for a turn, such as the start of a script that loads a framework.
PATIENT = ("js_time=20s",)
# QEMU's user network listens with a backlog of one for each forwarded port. With several host ports for one guest port, many connections
# open fast, because few SYNs are repeated a second later. The guest sees one address and the client's port, so two clients MUST NOT have
# the same port. The kernel would give a port twice, for two host ports. So the ports are chosen here, below those of the kernel.
FORWARDS = 8
SOURCE_PORTS = range(10_000, 32_000)


class AnyWebServer:
    """A web server on 127.0.0.1 that runs a script. A context manager."""

    ports: int
    # For each port of the script: the ports of 127.0.0.1 that lead there.
    reached: list[list[int]]

    def __enter__(self) -> AnyWebServer:
        raise NotImplementedError

    def __exit__(self, *_error: object) -> None:
        raise NotImplementedError

    @property
    def address(self) -> tuple[str, int]:
        return LOOPBACK, self.reached[0][0]

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.reached[0][0]}"

    def url_of(self, port: int) -> str:
        """Returns the base URL of the script's port PORT + `port`."""
        return f"http://{LOOPBACK}:{self.reached[port][0]}"

    # Shared by threads.
    _sources: Iterator[int]

    def connect(self, port: int = 0, seconds: float = ANSWER_SECONDS, receive_bytes: int = 0) -> HttpWire:
        reached = self.reached[port]
        for _ in SOURCE_PORTS:
            source = next(self._sources)
            try:
                wire = HttpWire((LOOPBACK, reached[source % len(reached)]), seconds, source, receive_bytes)
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                    raise
                continue
            time.sleep(CONNECT_PAUSE_SECONDS / len(reached))
            return wire
        raise Failure("this host has no free port for a client")

    @staticmethod
    def _endless_sources() -> Iterator[int]:
        first = random.randrange(len(SOURCE_PORTS))
        return itertools.cycle([*SOURCE_PORTS[first:], *SOURCE_PORTS[:first]])

    def check(self) -> None:
        """Checks that the server serves new connections; otherwise raises AssertionError."""
        try:
            for _ in range(2):
                with self.connect() as wire:
                    for _ in range(2):
                        reply = wire.get("/hello")
                        assert (reply.status, reply.body) == (200, b"hello\n"), reply
        except Exception as error:
            lines = "\n".join(self.last_words())
            raise AssertionError(f"the server does not answer any more: {type(error).__name__}: {error}\n{lines}") from error

    def last_words(self) -> list[str]:
        return []


class WebServer(AnyWebServer):
    """The image on a soft card behind QEMU's user network, with the script as a boot module. `ports`: how many the script listens on.
    `first_port`: the first of them. `words`: more words for the image's command line. `machine_options` go to Machine."""

    def __init__(
        self,
        script: Path,
        *,
        cores: int = 4,
        memory: str = "768M",
        words: Sequence[str] = PATIENT,
        ports: int = 1,
        first_port: int = PORT,
        preset: str = "image",
        **machine_options: object,
    ) -> None:
        image = build.image("webserver", preset)
        card_kind = str(machine_options.setdefault("card_kind", usual_card()))
        if not image.is_file() or (card_kind == DEFAULT_CARD and not SOFT_CARD.is_file()):
            missing = image if not image.is_file() else SOFT_CARD
            raise Failure(
                f"not built: {missing.relative_to(build.REPOSITORY)}", "./neap test system builds it, so does ./neap run webserver"
            )
        self._script, self._first_port = script, first_port
        self.ports = ports
        self._sources = self._endless_sources()
        self._archive = tempfile.NamedTemporaryFile(prefix="neap-web-", suffix=".archive")  # noqa: SIM115 - deleted with this object
        self._archive.write(web_archive.of(script))
        self._archive.flush()
        self.machine = Machine(
            image,
            cores=cores,
            memory=memory,
            forward=[(0, first_port + port) for port in range(ports) for _ in range(FORWARDS)] + [(0, CONTROL_PORT)],
            arguments=[f"port={first_port}", *words],
            modules=[Path(self._archive.name)],
            **machine_options,
        )

    def __enter__(self) -> WebServer:
        self.machine.start()
        try:
            for port in range(self.ports):
                self.machine.wait_for_line(rf"webserver: listening on [0-9.]+:{self._first_port + port}\b", START_SECONDS)
        except BaseException:
            self.machine.stop()
            raise
        forwarded = list(self.machine.forward)
        self.reached = [[host for host, guest in forwarded if guest == self._first_port + port] for port in range(self.ports)]
        return self

    def __exit__(self, *_error: object) -> None:
        self.machine.stop()

    def control(self) -> Control:
        return Control(LOOPBACK, self.machine.port(CONTROL_PORT), answer_seconds=CONTROL_SECONDS)

    def counters(self) -> dict[str, int]:
        """Returns the numbers of control's `stats`. A client is sure of its place for 100 ms, in which it must send a line
        (observe/admission.hpp). On a busy host it may be later, and then tries again."""
        for attempt in range(CONTROL_ATTEMPTS):
            try:
                with self.control() as control:
                    answer = control.ask("stats")
            except Lost:
                if attempt == CONTROL_ATTEMPTS - 1:
                    raise
                continue
            if answer.startswith("ok "):
                break
        assert answer.startswith("ok "), answer[:200]
        fields = (field.partition("=") for field in answer.removeprefix("ok ").split("; "))
        return {name: int(value) for name, _, value in fields if value.isdecimal()}

    def settled(self, condition, seconds: float = SETTLE_SECONDS) -> dict[str, int]:
        """Waits until `condition(counters)` is true. Returns the counters, the last ones after `seconds`."""
        last: dict[str, int] = {}

        def holds() -> bool:
            last.clear()
            last.update(self.counters())
            return condition(last)

        wait_until(holds, seconds, 0.25)
        return dict(last)

    def last_words(self) -> list[str]:
        return [f"console | {line}" for line in self.machine.lines[-30:]]


class NodeServer(AnyWebServer):
    """Node with the script, on loopback."""

    def __init__(self, script: Path, *, ports: int = 1) -> None:
        self._script, self.ports = script, ports
        self._sources = self._endless_sources()
        self._process: subprocess.Popen | None = None
        self._log = tempfile.NamedTemporaryFile(prefix="neap-node-")  # noqa: SIM115 - deleted with this object

    def __enter__(self) -> NodeServer:
        first = _free_ports(self.ports)
        self.reached = [[first + port] for port in range(self.ports)]
        environment = {**os.environ, "PORT": str(first), "NODE_ENV": "production"}
        self._process = spawn(
            [client_programs.program("node"), str(self._script)], stdout=self._log, stderr=subprocess.STDOUT, env=environment
        )

        def listens() -> bool:
            with contextlib.suppress(ConnectionRefusedError):
                for (port,) in self.reached:
                    socket.create_connection((LOOPBACK, port)).close()
                return True
            return self._process.poll() is not None

        if not wait_until(listens, START_SECONDS, 0.02) or self._process.poll() is not None:
            self.__exit__()
            raise Failure("Node does not start the script", details=self.last_words())
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            stop(self._process)

    def last_words(self) -> list[str]:
        return tail(Path(self._log.name))


def _free_ports(count: int) -> int:
    """Returns the first of `count` ports in a row that are free now."""
    for _ in range(100):
        first = free_port()
        try:
            with contextlib.ExitStack() as probes:
                for port in range(first, first + count):
                    probe = probes.enter_context(socket.socket())
                    probe.bind((LOOPBACK, port))
            return first
        except (OSError, OverflowError):
            continue
    raise Failure("this host has no free ports in a row")
