# SPDX-License-Identifier: BSL-1.0
"""The system calls of a script, on the sockets of the object."""

from __future__ import annotations

import dataclasses
import errno
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from tools.packetdrill import wire
from tools.packetdrill.flows import IN_SALT, OUT_SALT
from tools.packetdrill.machine import Machine
from tools.packetdrill.script import Call, Event

if TYPE_CHECKING:
    from tools.packetdrill.runner import Runner

WOULD_BLOCK = -errno.EAGAIN
# Options that change nothing here: the machine does so by default, or has no such limit.
ACCEPTED_OPTIONS = {"SO_REUSEADDR", "SO_SNDBUF", "SO_RCVBUF", "TCP_NODELAY"}


@dataclasses.dataclass
class Socket:
    handle: int | None = None
    port: int | None = None
    datagrams: bool = False
    listens: bool = False
    nonblocking: bool = False
    resets_on_close: bool = False
    sent: int = 0
    received: int = 0


@dataclasses.dataclass
class Pending:
    """A call that waits. `attempt` returns WOULD_BLOCK as long as it has to wait."""

    event: Event
    call: Call
    until_us: int
    attempt: Callable[[], int]


class Calls:
    def __init__(self, runner: Runner, machine: Machine):
        self.runner, self.machine = runner, machine
        self.sockets: dict[int, Socket] = {}
        self.pending: Pending | None = None
        self.last: Socket | None = None  # the last connection
        self.problem: tuple[str, str] | None = None  # of the last call: expected, seen

    def run(self, event: Event, call: Call, until_us: int | None) -> None:
        attempt = self._attempt(event, call)
        if until_us is not None:
            if self.pending:
                self.runner.fail(self.pending.event, "the call has returned", "it still waits")
            self.pending = Pending(event, call, until_us, attempt)
            self.check_pending()
            return
        self._compare(event, call, attempt())

    def check_pending(self, final: bool = False) -> None:
        """Ends the call that waits, if it can end; fails if it has waited too long."""
        if not self.pending:
            return
        pending = self.pending
        value = pending.attempt()
        now = self.runner.now_us()
        if value != WOULD_BLOCK:
            self.pending = None
            self._compare(pending.event, pending.call, value)
            if now > pending.until_us + self.runner.tolerance_us:
                self.runner.fail(pending.event, f"the call returns until {pending.until_us / 1e6:.6f}", f"it returned at {now / 1e6:.6f}")
        elif final or now > pending.until_us + self.runner.tolerance_us:
            self.runner.fail(pending.event, f"the call returns until {pending.until_us / 1e6:.6f}", "it still waits")

    def state(self, descriptor: int) -> dict[str, int]:
        handle = self.sockets[descriptor].handle
        return {} if handle is None else self.machine.state(handle)

    def state_of_last(self) -> dict[str, int]:
        return {} if self.last is None or self.last.handle is None else self.machine.state(self.last.handle)

    def _compare(self, event: Event, call: Call, value: int) -> None:
        expected = f"{call.result} {call.error}" if call.error else str(call.result)
        seen = f"-1 {errno.errorcode.get(-value, -value)}" if value < 0 else str(value)
        if self.problem:
            self.runner.fail(event, *self.problem)
        if expected != seen and not (call.result == -1 and not call.error and value < 0):
            self.runner.fail(event, expected, seen)

    def _attempt(self, event: Event, call: Call) -> Callable[[], int]:
        function = getattr(self, f"_do_{call.name}", None)
        if function is None:
            known = sorted(name[4:] for name in dir(self) if name.startswith("_do_"))
            self.runner.fail(event, f"one of the calls {', '.join(known)}", call.name)
        if call.name == "socket":
            return lambda: self._do_socket(call.arguments)
        try:
            descriptor = int(call.arguments[0], 0)
        except (IndexError, ValueError):
            self.runner.fail(event, "a file descriptor as first argument", ", ".join(call.arguments))
            raise AssertionError from None
        socket = self.sockets.get(descriptor)
        if socket is None:
            return lambda: -errno.EBADF
        if call.name == "close":
            return lambda: self._do_close(descriptor, socket)
        if call.name == "connect":
            return self._connect(socket)
        return lambda: function(socket, call.arguments[1:])

    def _add(self, socket: Socket) -> int:
        descriptor = next(number for number in range(3, 1 << 20) if number not in self.sockets)
        self.sockets[descriptor] = socket
        return descriptor

    @staticmethod
    def _length(arguments: list[str]) -> int:
        return int(arguments[1], 0)

    def _do_socket(self, arguments: list[str]) -> int:
        return self._add(Socket(datagrams=len(arguments) > 1 and "SOCK_DGRAM" in arguments[1]))

    def _do_bind(self, socket: Socket, arguments: list[str]) -> int:
        match = re.search(r"htons\((\d+)\)", " ".join(arguments))
        socket.port = int(match[1]) if match else self.runner.ports[1]
        if not socket.datagrams:
            return 0
        handle = self.machine.open_datagrams(socket.port)
        socket.handle = handle if handle >= 0 else None
        return min(handle, 0)

    def _do_listen(self, socket: Socket, _arguments: list[str]) -> int:
        handle = self.machine.listen(socket.port or 0)
        if handle < 0:
            return handle
        socket.handle, socket.listens = handle, True
        self.runner.ports = (self.runner.ports[0], socket.port or 0)
        return 0

    def _do_accept(self, socket: Socket, _arguments: list[str]) -> int:
        if socket.handle is None or not socket.listens:
            return -errno.EINVAL
        handle = self.machine.accept(socket.handle)
        if handle < 0:
            return handle
        self.last = Socket(handle)
        return self._add(self.last)

    def _do_connect(self, *_: object) -> int:
        return 0  # `_connect` does it in two steps

    def _connect(self, socket: Socket) -> Callable[[], int]:
        def attempt() -> int:
            if socket.handle is None:
                self.runner.ports, self.runner.machine_port_known = (8080, 0), False
                handle = self.machine.connect(self.runner.remote_address, 8080)
                if handle < 0:
                    return handle
                socket.handle = handle
                self.last = socket
                if socket.nonblocking:
                    return -errno.EINPROGRESS
            state = self.machine.connected(socket.handle)
            return 0 if state == 1 else WOULD_BLOCK if state == 0 else state

        return attempt

    def _do_read(self, socket: Socket, arguments: list[str]) -> int:
        if socket.handle is None:
            return -errno.ENOTCONN
        length = self._length(arguments)
        if socket.datagrams:
            taken, data = self.machine.receive_datagram(socket.handle, length)
            first, salt = 0, 0
        else:
            taken, data = self.machine.receive(socket.handle, length)
            first, salt = socket.received, IN_SALT
        if taken > 0:
            if data != wire.pattern(first, taken, salt):
                self.problem = ("the bytes that the peer sent", f"other bytes: {data[:32].hex()}")
            socket.received += taken
        return taken

    _do_recv = _do_read

    def _do_write(self, socket: Socket, arguments: list[str]) -> int:
        if socket.handle is None:
            return -errno.ENOTCONN
        data = wire.pattern(socket.sent, self._length(arguments), OUT_SALT)
        sent = self.machine.send(socket.handle, data)
        socket.sent += max(sent, 0)
        return sent

    _do_send = _do_write

    def _do_sendto(self, socket: Socket, arguments: list[str]) -> int:
        if socket.handle is None or not socket.datagrams:
            return -errno.EINVAL
        data = wire.pattern(0, self._length(arguments), OUT_SALT)
        return self.machine.send_datagram(socket.handle, self.runner.remote_address, self.runner.ports[0], data)

    def _do_shutdown(self, socket: Socket, arguments: list[str]) -> int:
        if socket.handle is None:
            return -errno.ENOTCONN
        return self.machine.shutdown(socket.handle) if arguments[0] in ("SHUT_WR", "SHUT_RDWR") else 0

    def _do_close(self, descriptor: int, socket: Socket) -> int:
        del self.sockets[descriptor]
        if socket.handle is None or socket.listens or socket.datagrams:
            return 0
        if self.last is socket:
            self.last = None
        return self.machine.abort(socket.handle) if socket.resets_on_close else self.machine.close(socket.handle)

    def _do_fcntl(self, socket: Socket, arguments: list[str]) -> int:
        if arguments[0] == "F_GETFL":
            return 0x802 if socket.nonblocking else 2
        socket.nonblocking = "O_NONBLOCK" in arguments[1]
        return 0

    def _do_setsockopt(self, socket: Socket, arguments: list[str]) -> int:
        if arguments[1] == "SO_LINGER":
            numbers = [int(number) for number in re.findall(r"=\s*(\d+)", arguments[2])]
            socket.resets_on_close = len(numbers) == 2 and numbers[0] != 0 and numbers[1] == 0
            return 0
        return 0 if arguments[1] in ACCEPTED_OPTIONS else -errno.ENOPROTOOPT

    def _do_getsockopt(self, socket: Socket, arguments: list[str]) -> int:
        if arguments[1] != "SO_ERROR" or socket.handle is None:
            return -errno.ENOPROTOOPT
        error = max(0, -self.machine.connected(socket.handle)) or self.machine.state(socket.handle)["error"]
        expected = re.search(r"\w+", arguments[2])
        wanted = getattr(errno, expected[0], None) if expected and expected[0].startswith("E") else int(expected[0]) if expected else 0
        if wanted != error:
            self.problem = (arguments[2], f"[{errno.errorcode.get(error, error)}]")
        return 0
