# SPDX-License-Identifier: BSL-1.0
"""Sends commands to the running soft card over its `--control` socket, for counters, faults and its clock."""

import contextlib
import json
import socket
from pathlib import Path

from tools.errors import Failure

CARD_ANSWER_SECONDS = 10.0


class CardControl:
    """A connection to the soft card's control socket, which answers each line with one line of JSON."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CARD_ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._stream = self._socket.makefile("rwb")

    def command(self, text: str):
        """Sends a command and returns the decoded answer. Raises Failure if the answer is an error or does not come in time."""
        try:
            self._stream.write(text.encode() + b"\n")
            self._stream.flush()
            if text == "state":
                return self._text()
            answer = self._line()
        except OSError as error:
            raise Failure(f"the soft card did not answer '{text}': {error}") from None
        decoded = json.loads(answer)
        if isinstance(decoded, dict) and "error" in decoded:
            raise Failure(f"the soft card refused '{text}': {decoded['error']}")
        return decoded

    def _line(self) -> str:
        line = self._stream.readline()
        if not line.endswith(b"\n"):
            raise OSError("it closed the connection")
        return line.decode().rstrip("\n")

    def _text(self) -> str:
        lines = []
        while (line := self._line()) != ".":
            lines.append(line)
        return "\n".join(lines)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        self._socket.close()
