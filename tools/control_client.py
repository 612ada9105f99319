# SPDX-License-Identifier: BSL-1.0
"""A client of a machine's control server, which answers each line with one line (docs/control.md).

Each wait and each whole answer have a time-out, so that a peer that sends single bytes slowly cannot block the client. The length of an
answer line is limited, and errors never contain the token.
"""

import contextlib
import re
import socket
import time
from pathlib import Path

from tools.errors import Failure
from tools.foreign import U64_MAX, decimal, shown

ANSWER_SECONDS = 15.0
CONNECT_SECONDS = 10.0
ANSWER_BYTES_MAX = 1 << 20
LINE_BYTES_MAX = 4096
TOKEN_BYTES_MAX = 1024
RECEIVE_BYTES = 1 << 18
# The time limit of a read is its time-out, plus the time that its bytes need at this rate.
SLOWEST_BYTES_PER_SECOND = 16_384
# The form of an answer (docs/control.md, "Rules").
ANSWER = re.compile(r"ok(\s|$)|error:")
# The beginnings of other servers' answers to a line that they do not know, or of their greetings.
OTHER_SERVERS = (
    (re.compile(rb"SSH-"), "an SSH server"),
    (re.compile(rb"HTTP/|<"), "an HTTP server"),  # a server that takes the line for HTTP 0.9 answers with a page alone
    (re.compile(rb"(CLIENT_|SERVER_)?ERROR|STAT |VERSION "), "a memcached"),
    (re.compile(rb"-ERR"), "a Redis server"),
    (re.compile(rb"220[ -]"), "a mail or FTP server"),
    (re.compile(rb"\x15\x03"), "a TLS server"),  # an alert record
)
WHERE_CONTROL_IS = "a machine serves control on port 5002, or on the port of its word control="
SHOWN_CHARACTERS_MAX = 60


class Lost(Failure):
    """The connection failed or ended, or an answer timed out. A retry may succeed."""


class Refused(Failure):
    """The machine answered with an error."""


class NotControl(Failure):
    """The peer is no control server."""


class Control(contextlib.AbstractContextManager):
    """One connection, as a context manager. Raises Lost if connecting fails, Refused if the token is wrong, and NotControl if the first
    answer is none of a control server."""

    def __init__(self, host: str, port: int, token: str | None = None, answer_seconds: float = ANSWER_SECONDS):
        self.name = f"{host}:{port}"
        self._answer_seconds = answer_seconds
        self._buffer = bytearray()
        self._is_control = False
        try:
            self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            unknown = isinstance(error, socket.gaierror | UnicodeError)
            hint = "no host is named so, and no application that runs here" if unknown else "is the machine up, and control served there?"
            raise Lost(f"nothing answers on {self.name}: {reason}", hint) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if token is not None:
            try:
                answer = self.ask(f"token,{token}")
                if answer.startswith("error"):
                    raise Refused(f"{self.name} refused the token")
            except BaseException:
                self.close()
                raise

    def __exit__(self, *_exception) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(self, line: str) -> None:
        """Sends one line. Does not wait for an answer."""
        try:
            self._socket.settimeout(self._answer_seconds)
            self._socket.sendall(line.encode(errors="surrogateescape") + b"\n")
        except OSError as error:
            raise Lost(f"{self.name} ended the connection: {error.strerror or error}") from None

    def end_sending(self) -> None:
        """Closes this side of the connection. The peer's answers can still be read."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def ask(self, line: str) -> str:
        self.send(line)
        if self._is_control:
            return self.read_line()
        try:
            answer = self.read_line()
        except Lost as lost:
            self._refuse_other_servers(bytes(self._buffer))
            raise Lost(lost.message, lost.hint or WHERE_CONTROL_IS) from None
        if not ANSWER.match(answer):
            self._refuse_other_servers(answer.encode())
            answer = shown(answer, SHOWN_CHARACTERS_MAX)
            raise NotControl(f"{self.name} is no control server: it answers '{answer}'", WHERE_CONTROL_IS)
        self._is_control = True
        return answer

    def _refuse_other_servers(self, beginning: bytes) -> None:
        """Raises NotControl if the bytes are the beginning of an answer of a server of another kind."""
        for pattern, kind in OTHER_SERVERS:
            if pattern.match(beginning):
                raise NotControl(f"{self.name} is no control server: {kind} answers there", WHERE_CONTROL_IS)

    def read_line(self) -> str:
        deadline = time.monotonic() + self._answer_seconds
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > ANSWER_BYTES_MAX:
                raise Lost(f"{self.name} answers with no end; that is no control server")
            if not self._receive(self._answer_seconds, deadline):
                raise Lost(f"{self.name} ended the connection without an answer", WHERE_CONTROL_IS)
        line = bytes(self._buffer[:end]).decode("utf-8", "replace").rstrip("\r")
        del self._buffer[: end + 1]
        return line

    def read(self, count: int, seconds: float) -> bytes:
        """Reads exactly `count` bytes, or fewer if the connection ends. Raises Lost after `seconds` without data, or if the whole read is
        slower than SLOWEST_BYTES_PER_SECOND."""
        deadline = time.monotonic() + seconds + count / SLOWEST_BYTES_PER_SECOND
        while len(self._buffer) < count and self._receive(seconds, deadline):
            pass
        data = bytes(self._buffer[:count])
        del self._buffer[: len(data)]
        return data

    def _receive(self, seconds: float, deadline: float) -> bool:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Lost(f"{self.name} sends too slowly")
        try:
            self._socket.settimeout(min(seconds, left))
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            trouble = "sends too slowly" if self._buffer else f"sent nothing for {seconds:g} s"
            raise Lost(f"{self.name} {trouble}") from None
        except OSError as error:
            raise Lost(f"{self.name} ended the connection: {error.strerror or error}") from None
        self._buffer += data
        return bool(data)


def read_token(path: str | None) -> str | None:
    """Returns the token, which is the first line of the file `path`; None without a path. Raises Failure if the file holds no token."""
    if path is None:
        return None
    try:
        with open(Path(path), "rb") as data:
            text = data.read(TOKEN_BYTES_MAX + 1).split(b"\n")[0].strip()
    except OSError as error:
        raise Failure(f"cannot read the token file {path}: {error.strerror}") from None
    if not text or len(text) > TOKEN_BYTES_MAX or not text.isascii() or b"," in text:
        raise Failure(f"{path} holds no token in its first line")
    return text.decode()


def text_of(answer: str) -> str | None:
    """Returns the lines in an answer's last field `text=` (docs/control.md, dmesg); None if the answer has no such field."""
    _, found, text = answer.partition("; text=")
    if not answer.startswith("ok ") or not found:
        return None

    def letter(match: re.Match[str]) -> str:
        escape = match[1]
        if escape[0] == "x":
            return chr(int(escape[1:], 16))
        return "\n" if escape == "n" else escape

    return re.sub(r"\\(x[0-9a-f]{2}|n|\\)", letter, text)


def speaks_ebbrts_dialect(connection: Control) -> bool:
    """True if the machine answers lines such as `start,0` as EbbRT does (docs/control.md, "The dialect of EbbRT")."""
    return fields_of(connection.ask("status")).get("dialect") == "ebbrt"


def next_piece(fields: dict[str, str]) -> int | None:
    """Returns the position at which the answer's text continues; None if it is complete. Raises Refused if the position is no number."""
    if "next" not in fields or fields["next"] in (fields.get("end"), fields.get("first")):
        return None
    try:
        return decimal(fields["next"], U64_MAX)
    except ValueError as error:
        raise Refused(f"the machine's text goes on nowhere: {error}") from None


def fields_of(answer: str) -> dict[str, str]:
    """'ok a=1; b=2' -> {"a": "1", "b": "2"}. Parts without '=' are left out."""
    return dict(part.strip().split("=", 1) for part in answer.removeprefix("ok").strip().split(";") if "=" in part)
