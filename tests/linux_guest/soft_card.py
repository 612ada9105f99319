# SPDX-License-Identifier: BSL-1.0
"""The soft card's server as a test needs it: started, asked, stopped, and, in one test, killed."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
from pathlib import Path

from tools.errors import Failure
from tools.process import spawn, stop, tail, wait_until

READY_SECONDS = 15
ANSWER_SECONDS = 10


class SoftCard:
    """One server process with its three sockets in `folder`, which must be short enough for UNIX socket names. A context manager."""

    def __init__(self, program: Path, folder: Path, *options: str) -> None:
        self.socket = folder / "card.sock"
        self.network_socket = folder / "net.sock"
        self.control_socket = folder / "control.sock"
        self.log = folder / "soft82599.log"
        self._argv = [str(program), "--socket", str(self.socket), "--net", f"listen:{self.network_socket}",
                      "--control", str(self.control_socket), *options]  # fmt: skip
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> SoftCard:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and waits until it listens. Raises Failure with the end of its log."""
        with self.log.open("wb") as log:
            self._process = spawn(self._argv, stdout=log, stderr=subprocess.STDOUT)

        def ready() -> bool:
            return not self.running or b"soft82599: ready\n" in self.log.read_bytes()

        if not wait_until(ready, READY_SECONDS) or not self.running:
            status = self._process.poll()
            self.stop()
            raise Failure(f"the soft card's server is not ready ({'no answer' if status is None else f'status {status}'})", details=tail(self.log))

    def stop(self) -> int:
        """Asks the server to end; returns its exit status."""
        return stop(self._process) if self._process is not None else 0

    def kill(self) -> None:
        """Ends the server as a crash would: no goodbye to the guest."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=ANSWER_SECONDS)

    def ask(self, command: str) -> dict:
        """One command on the control socket, its answer as JSON. Raises Failure if the card calls it an error."""
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as control:
            control.settimeout(ANSWER_SECONDS)
            control.connect(str(self.control_socket))
            control.sendall(command.encode() + b"\n")
            line = control.makefile("rb").readline()
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(f"soft card, {command!r}: {answer['error']}")
        return answer
