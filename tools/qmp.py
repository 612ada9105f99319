# SPDX-License-Identifier: BSL-1.0
"""A client of QEMU's monitor protocol (QMP): commands, and the reason of the last shutdown."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import socket
import subprocess
import threading
from pathlib import Path

from tools.errors import Failure
from tools.process import wait_until

ANSWER_SECONDS = 30.0
CONNECT_POLL_SECONDS = 0.02
# A line of `info usernet`: the protocol with its state, a file descriptor, the host's address and port, the guest's address and port.
_FORWARD = re.compile(r"^ *TCP\[HOST_FORWARD\] +\d+ +\S+ +(\d+) +\S+ +(\d+) ", re.MULTILINE)


class Qmp:
    """A connection to the monitor. A thread reads from it, passes answers to the caller and handles events as they arrive."""

    def __init__(self, connection: socket.socket):
        self._socket = connection
        self._stream = connection.makefile("rb")
        self._answers: queue.Queue = queue.Queue()
        self._guard = threading.Lock()
        self._reason: str | None = None
        self._ended = threading.Event()
        self.stopped = threading.Event()  # set when QEMU has stopped the guest at least once
        threading.Thread(target=self._read, daemon=True).start()

    @classmethod
    def connect(cls, path: Path, process: subprocess.Popen, timeout_seconds: float) -> Qmp | None:
        """Connects as soon as QEMU listens, and negotiates. Returns None if QEMU ends first or takes too long."""

        def connected() -> socket.socket | bool:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(str(path))
            except OSError:
                connection.close()
                return process.poll() is not None
            return connection

        connection = wait_until(connected, timeout_seconds, CONNECT_POLL_SECONDS)
        if not isinstance(connection, socket.socket):
            return None
        monitor = cls(connection)
        monitor.command("qmp_capabilities")
        return monitor

    def command(self, command: str, **arguments):
        """Runs one command and returns its return value. Raises Failure if QEMU refuses or has ended."""
        request = {"execute": command, **({"arguments": arguments} if arguments else {})}
        with self._guard:
            try:
                self._socket.sendall(json.dumps(request).encode() + b"\n")
                answer = self._answers.get(timeout=ANSWER_SECONDS)
            except (OSError, queue.Empty):
                raise Failure(f"QEMU's monitor did not answer '{command}'") from None
        if answer is None:
            self._answers.put(None)
            raise Failure(f"QEMU ended before it answered '{command}'")
        if "error" in answer:
            raise Failure(f"QEMU refused '{command}': {answer['error'].get('desc', answer['error'])}")
        return answer["return"]

    def forwards(self) -> list[tuple[int, int]]:
        """Returns the user network's forwarded TCP ports, as pairs of the host's and the guest's port. QEMU tells them as text only."""
        table = self.command("human-monitor-command", **{"command-line": "info usernet"})
        return [(int(host), int(guest)) for host, guest in _FORWARD.findall(table)]

    def shutdown_reason(self, timeout_seconds: float = 5.0) -> str | None:
        """Waits for QEMU's end. Returns the reason that QEMU reported ('guest-shutdown', 'guest-reset', 'host-signal' …), if any."""
        self._ended.wait(timeout_seconds)
        return self._reason

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in self._stream:
                message = json.loads(line)
                if "return" in message or "error" in message:
                    self._answers.put(message)
                elif message.get("event") == "SHUTDOWN":
                    self._reason = message.get("data", {}).get("reason")
                elif message.get("event") == "STOP":
                    self.stopped.set()
        self._ended.set()
        self._answers.put(None)
