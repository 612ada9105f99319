# SPDX-License-Identifier: BSL-1.0
"""Compares the parsers with Debian's stock memcached: both must answer random conversations with the same bytes.

The test starts stock memcached on a free loopback port. Deliberate differences of Neap are left out (text_protocol.hpp and docs list them):
lines without an end, the version's text, statistics. Meta commands have a test of their own.
"""

import contextlib
import random
import re
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from replayed import ANSWER_SECONDS, REPLAY, ask_neap, compare
from servers import StockServer

CONVERSATIONS = 300
END_OF_TEXT = b"verbosity 0 0 end of conversation\r\n"  # too many words, so the answer is exactly one ERROR
LONG_KEY = b"k" * 251  # one byte too long
KEYS = [b"a", b"b", b"c", b"n", b"k" * 250, LONG_KEY, b"with\ttab"]
NUMBERS = [b"0", b"1", b"7", b"-1", b"+3", b"x", b"1x", b"18446744073709551615", b"18446744073709551616", b"4294967296", b"99", b"10"]
# No value is only white space, because stock memcached then reads a number from the bytes behind the value.
VALUES = [
    b"",
    b"0",
    b"1",
    b"41",
    b"99",
    b" 7",
    b"x",
    b"hello",
    b"v" * 1000,
    b"v" * 1024,
    b"v" * 5000,
    b"x\r\ny",
    b"\x80\x00\xff",
    b"18446744073709551615",
]


@pytest.fixture(scope="module")
def stock() -> Iterator[tuple[str, int]]:
    assert REPLAY.is_file(), "build/host is not built: ./neap test host builds it"
    with StockServer("-t", "1", "-m", "64") as server:
        yield server.address


def ask_stock(address: tuple[str, int], request: bytes) -> bytes:
    """Sends `request`, shuts the sending direction down, and returns all bytes until memcached closes."""
    with socket.create_connection(address, ANSWER_SECONDS) as wire:

        def send() -> None:
            with contextlib.suppress(ConnectionError):  # memcached may close before all is sent
                wire.sendall(request)
                wire.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)  # memcached stops reading a long request while its answers are not read
        sending.start()
        answer = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while piece := wire.recv(1 << 16):
                answer += piece
        sending.join(ANSWER_SECONDS)
        return bytes(answer)


def text_conversation(dice: random.Random) -> bytes:
    lines = [b"flush_all noreply"]

    def word() -> bytes:
        return dice.choice(KEYS if dice.random() < 0.6 else NUMBERS)

    for _ in range(dice.randint(1, 25)):
        if dice.random() < 0.5:
            value = dice.choice(
                [value for value in VALUES if len(value) < 2000]
            )  # after an error the value is parsed as a line, whose length is limited
            verb = dice.choice([b"set", b"set", b"set", b"add", b"replace", b"append", b"prepend", b"cas"])
            flags = dice.choice(NUMBERS) if dice.random() < 0.15 else b"5"
            expiry = dice.choice([b"-1", b"100", b"2592001", b"x"]) if dice.random() < 0.15 else b"0"
            size = dice.choice([b"-1", b"x", b"3"]) if dice.random() < 0.06 else b"%d" % len(value)
            words = [verb, dice.choice(KEYS), flags, expiry, size]
            if verb == b"cas":
                words.append(b"999999999999" if dice.random() < 0.9 else dice.choice(NUMBERS))
            if dice.random() < 0.1:
                words.append(dice.choice([b"noreply", b"foo"]))
            lines.append(b" ".join(words))
            lines.append(value)
            continue
        verb = dice.choice(
            [b"get"] * 6
            + [b"gets", b"gat", b"gats", b"delete", b"incr", b"incr", b"decr", b"touch", b"flush_all", b"verbosity", b"nonsense", b"", b"x"]
        )
        if verb == b"flush_all":
            lines.append(
                dice.choice([b"flush_all", b"flush_all 0", b"flush_all x", b"flush_all -1", b"flush_all 0 noreply", b"flush_all 1 2 3"])
            )
            continue
        words = [verb]
        if verb in (b"incr", b"decr"):
            words += [dice.choice(KEYS), dice.choice(NUMBERS)]
        elif verb in (b"gat", b"gats"):
            words += [dice.choice([b"0", b"100", b"-1", b"x"])]
        elif verb == b"touch":
            words += [dice.choice(KEYS), dice.choice([b"0", b"100", b"-1", b"x"])]
        words += [word() for _ in range(dice.choice([0, 0, 1, 1, 1, 2, 5, 40 if verb in (b"get", b"gets") else 3]))]
        if verb == b"verbosity":
            words[1:] = [b"0"] * len(words[1:]) if dice.random() < 0.7 else [b"x"]  # after a wrong first word, further words have no effect
        if verb.startswith(b"g"):
            # If a get has an invalid key, stock memcached also drops answers to earlier requests that arrived with the get.
            words = [b"d" if word == LONG_KEY else word for word in words]
        if dice.random() < 0.1:
            words.append(b"noreply")
        lines.append(b" ".join(words))
    return b"\r\n".join(lines) + b"\r\n" + END_OF_TEXT


def without_cas(answer: bytes) -> bytes:
    """Replaces CAS ids in `answer`, because stock memcached does not restart them with each conversation."""
    return re.sub(rb"(VALUE \S+(?:\t\S+)? \d+ \d+) \d+\r\n", rb"\1 CAS\r\n", answer)


@pytest.mark.parametrize("seed", range(10))
def test_text_conversations_are_answered_alike(stock: tuple[str, int], seed: int) -> None:
    for round_number in range(CONVERSATIONS // 10):
        request = text_conversation(random.Random(f"text {seed} {round_number}"))
        ours = ask_neap(request).replace(b"CLIENT_ERROR line too long", b"ERROR")
        compare(without_cas(ours), without_cas(ask_stock(stock, request)), request, round_number)


def frame(opcode: int, extras: bytes = b"", key: bytes = b"", value: bytes = b"", cas: int = 0, body: int | None = None) -> bytes:
    size = len(extras) + len(key) + len(value) if body is None else body
    return struct.pack(">BBHBBHIIQ", 0x80, opcode, len(key), len(extras), 0, 0, size, 0xFEED, cas) + extras + key + value


def binary_conversation(dice: random.Random) -> bytes:
    request = frame(0x08)
    for _ in range(dice.randint(1, 25)):
        key = dice.choice(KEYS[:5])
        value = dice.choice(VALUES)
        kind = dice.random()
        cas = 999_999_999_999 if dice.random() < 0.1 else 0
        if kind < 0.4:
            request += frame(
                dice.choice([0x01, 0x01, 0x02, 0x03, 0x11, 0x12, 0x13]),
                struct.pack(">Ii", 7, dice.choice([0, 0, 0, -1, 100])),
                key,
                value,
                cas,
            )
        elif kind < 0.6:
            request += frame(dice.choice([0x00, 0x09, 0x0C, 0x0D]), b"", key)
        elif kind < 0.7:
            request += frame(
                dice.choice([0x05, 0x06, 0x15, 0x16]),
                struct.pack(">QQI", dice.choice([0, 1, 2**64 - 1]), 10, dice.choice([0, 0xFFFFFFFF])),
                b"n",
                b"",
                cas,
            )
        elif kind < 0.78:
            request += frame(dice.choice([0x0E, 0x0F, 0x19, 0x1A]), b"", key, value, cas)
        elif kind < 0.84:
            request += frame(dice.choice([0x04, 0x14]), b"", key, b"", cas)
        elif kind < 0.92:
            request += frame(dice.choice([0x1C, 0x1D, 0x1E, 0x23, 0x24]), struct.pack(">i", dice.choice([0, 100, -1])), key)
        elif kind < 0.96:
            request += frame(dice.choice([0x0A, 0x08, 0x18]))
        elif kind < 0.98:
            # A list of statistics without lines, an unknown one, and commands that memcached does not have. It skips extras and key of such
            # a command twice, so these have none.
            request += dice.choice(
                [frame(0x10, b"", b"reset"), frame(0x10, b"", b"nonsense"), frame(0x1B), frame(0x30), frame(0xFF, b"", b"", b"value")]
            )
        else:  # contradictory lengths end the conversation: after further bytes, memcached could reset it, and answers would be lost
            return request + dice.choice(
                [
                    frame(0x00),
                    frame(0x01, b"", key, value),
                    frame(0x00, b"x", key),
                    frame(0x0A, b"", b"k"),
                    frame(0x01, b"x" * 8, key, b"", body=4),
                ]
            )
    return request + frame(dice.choice([0x07, 0x07, 0x17]))


def binary_answers(answer: bytes) -> list[tuple[bytes, bytes, int, bytes]]:
    """Returns headers and bodies. In each header, a flag replaces the CAS id: it tells whether the id is 0. Blanks at the end of a body and
    its length are left out: memcached pads a number that has become shorter only if no answer with the old one is being sent."""
    answers = []
    at = 0
    while at < len(answer):
        size = struct.unpack_from(">I", answer, at + 8)[0]
        head = answer[at : at + 16]
        answers.append((head[:8], head[12:16], int(any(answer[at + 16 : at + 24])), answer[at + 24 : at + 24 + size].rstrip(b" ")))
        at += 24 + size
    return answers


@pytest.mark.parametrize("seed", range(10))
def test_binary_conversations_are_answered_alike(stock: tuple[str, int], seed: int) -> None:
    for round_number in range(CONVERSATIONS // 10):
        request = binary_conversation(random.Random(f"binary {seed} {round_number}"))
        compare(binary_answers(ask_neap(request)), binary_answers(ask_stock(stock, request)), request, round_number)
