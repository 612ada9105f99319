# SPDX-License-Identifier: BSL-1.0
"""Requests to the running soft card over its `--control` socket: counters, faults, its clock."""

import contextlib
import json
import socket
from pathlib import Path

from tools.errors import Failure

CARD_ANSWER_SECONDS = 10.0


class CardControl:
    """A connection to the soft card's control socket: one line out, one JSON line back."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CARD_ANSWER_SECONDS)
        self._socket.connect(str(path))
        self._stream = self._socket.makefile("rwb")

    def command(self, text: str):
        """Raises Failure if the card answers with an error or not in time."""
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
