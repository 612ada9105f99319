# SPDX-License-Identifier: BSL-1.0
"""The memcached under test: Neap's image on a machine or, to check the tests themselves, Debian's stock memcached on loopback.

If stock memcached fails a test, the test requires a property that memcached does not have. To find such tests, `pytest tests/system
--stock` runs the protocol tests against stock memcached. Tests of the machine itself (registers, boot, cores) need the image and are
skipped then.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from wire import ANSWER_SECONDS, Wire

from tools import build
from tools.control_client import Control
from tools.debian import DebianProgram
from tools.errors import Failure
from tools.machine import DEFAULT_CARD, LOOPBACK, SOFT_CARD, Machine, free_port, usual_card
from tools.machine_registry import CONTROL_PORT
from tools.process import spawn, stop, tail, wait_until

GUEST_PORT = 11211
START_SECONDS = 60.0
CONNECT_PAUSE_SECONDS = 0.01
CONTROL_SECONDS = 60.0
LISTENING = r"memcached: listening on [0-9.]+:11211"


def forward(machine: Machine, protocol: str, port: int, guest_port: int) -> None:
    """Forwards a port of the host to a running machine. Raises Failure if QEMU cannot."""
    line = f"hostfwd_add user {protocol}:{LOOPBACK}:{port}-:{guest_port}"
    if answer := machine.qmp("human-monitor-command", **{"command-line": line}):
        raise Failure(f"QEMU refuses '{line}': {answer}")


class Server:
    """A memcached that listens on 127.0.0.1. A context manager."""

    address: tuple[str, int]
    # The largest value that the server accepts.
    value_limit_bytes = 1 << 20

    def __enter__(self) -> Server:
        raise NotImplementedError

    def __exit__(self, *_error: object) -> None:
        raise NotImplementedError

    def connect(self, seconds: float = ANSWER_SECONDS) -> Wire:
        wire = Wire(self.address, seconds)
        # QEMU's user network listens with a backlog of one. Of two connections opened at once, one repeats its SYN a second later.
        time.sleep(CONNECT_PAUSE_SECONDS)
        return wire

    def check(self) -> None:
        """Checks that the server serves a new connection; otherwise raises AssertionError."""
        try:
            with self.connect() as wire:
                assert wire.ask_line(b"version\r\n").startswith(b"VERSION ")
                wire.store(b"check-alive", b"yes", expires=60)
                assert wire.fetch(b"check-alive") == b"yes"
        except Exception as error:
            raise AssertionError(f"the server does not answer any more: {error}\n" + "\n".join(self.last_words())) from error

    def last_words(self) -> list[str]:
        return []


# The cores of machines whose test names no number: pytest's --server-cores.
usual_cores = 1


class NeapServer(Server):
    """The image, on the usual card behind QEMU's user network, with memcached and control forwarded. With `udp`, memcached's port has UDP.
    `machine_options` go to Machine."""

    def __init__(
        self,
        *,
        cores: int | None = None,
        memory: str = "512M",
        arguments: Sequence[str] = (),
        preset: str = "image",
        card_options: Sequence[str] = (),
        udp: bool = False,
        **machine_options: object,
    ) -> None:
        image = build.image("memcached", preset)
        card_kind = str(machine_options.setdefault("card_kind", usual_card()))
        if not image.is_file() or (card_kind == DEFAULT_CARD and not SOFT_CARD.is_file()):
            missing = image if not image.is_file() else SOFT_CARD
            raise Failure(
                f"not built: {missing.relative_to(build.REPOSITORY)}", "./neap test system builds it, so does ./neap run memcached"
            )
        forward = [(0, GUEST_PORT), (0, CONTROL_PORT)]
        self._udp = udp
        if udp:
            arguments = [*arguments, f"udp-port={GUEST_PORT}"]
            machine_options["outside"] = True  # otherwise QEMU's user network drops all datagrams of the guest
        self.machine = Machine(
            image,
            cores=cores or usual_cores,
            memory=memory,
            forward=forward,
            arguments=arguments,
            card_options=card_options,
            **machine_options,
        )
        self.start_seconds = 0.0

    def __enter__(self) -> NeapServer:
        start = time.monotonic()
        self.machine.start()
        try:
            self.machine.wait_for_line(LISTENING, START_SECONDS)
            if self._udp:
                forward(self.machine, "udp", self.machine.port(GUEST_PORT), GUEST_PORT)
        except BaseException:
            self.machine.stop()
            raise
        self.start_seconds = time.monotonic() - start
        self.address = (LOOPBACK, self.machine.port(GUEST_PORT))
        return self

    def __exit__(self, *_error: object) -> None:
        self.machine.stop()

    @property
    def control_target(self) -> str:
        """Returns control's address, in the form for `./neap ctl`."""
        return f"{LOOPBACK}:{self.machine.port(CONTROL_PORT)}"

    def control(self) -> Control:
        # Under full load, QEMU's network accepts a connection on the host, but may lose its SYNs to the guest. So the time-out is long.
        return Control(LOOPBACK, self.machine.port(CONTROL_PORT), answer_seconds=CONTROL_SECONDS)

    def last_words(self) -> list[str]:
        return [f"console | {line}" for line in self.machine.lines[-30:]]


class StockServer(Server):
    """Debian's memcached, unpacked into the cache."""

    # Stock memcached's limit includes an item's header and is a multiple of half a slab page. So the limit must be above 1 MiB for values
    # of 1 MiB.
    value_limit_bytes = 2 << 20

    def __init__(self, *options: str, udp: bool = False) -> None:
        self._program = DebianProgram("memcached", "memcached")
        self._options = options
        self._udp = udp
        self._process: subprocess.Popen | None = None
        self._log = tempfile.NamedTemporaryFile(prefix="neap-memcached-")  # noqa: SIM115 - deleted with this object

    def __enter__(self) -> StockServer:
        self.address = (LOOPBACK, free_port())
        port = str(self.address[1])
        argv = [*self._program.argv, "-l", LOOPBACK, "-p", port, "-U", port if self._udp else "0", "-u", "root"]
        argv += ["-I", str(self.value_limit_bytes), *self._options]
        self._process = spawn(argv, stdout=self._log, stderr=subprocess.STDOUT)

        def listens() -> bool:
            with contextlib.suppress(ConnectionRefusedError):
                self.connect().close()
                return True
            return self._process.poll() is not None

        if not wait_until(listens, START_SECONDS, 0.02) or self._process.poll() is not None:
            self.__exit__()
            raise Failure("Debian's memcached does not start", details=self.last_words())
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process is not None:
            stop(self._process)

    def last_words(self) -> list[str]:
        return tail(Path(self._log.name))
