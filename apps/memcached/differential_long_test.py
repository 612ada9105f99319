# SPDX-License-Identifier: BSL-1.0
"""Compares long values with Debian's stock memcached: lengths around the ends of our pieces, of its chunks, and above 1 MiB.

Neap stores values above 256 KiB in pieces, and stock memcached those above 512 KiB in chunks. `incr` of a long value is left out: memcached
takes a number with trailing blanks up to 512 KiB.
"""

import hashlib
import random
import struct
import subprocess
from collections.abc import Iterator

import pytest
from differential_test import ask_stock, binary_answers, frame, without_cas
from replayed import ANSWER_SECONDS, REPLAY, compare
from servers import StockServer

CONVERSATIONS = 10
PIECE = 256 << 10
EDGES = [0, 1, PIECE, 2 * PIECE, 3 * PIECE, 4 * PIECE, 5 * PIECE]
VALUE_BYTES_MAX = 15 << 17  # both accept it; stock counts its header, too
KEYS = [b"a", b"b", b"k" * 250]


@pytest.fixture(scope="module")
def stock() -> Iterator[tuple[str, int]]:
    with StockServer("-t", "1", "-m", "200") as server:
        yield server.address


def long_value(dice: random.Random, most: int = VALUE_BYTES_MAX) -> bytes:
    size = min(max(0, dice.choice(EDGES) + dice.randint(-2, 2)), most)
    pattern = dice.randbytes(65_521)  # a prime number, so that exchanged pieces are noticed
    return (pattern * (size // len(pattern) + 1))[:size]


def text_conversation(dice: random.Random) -> bytes:
    request = b"flush_all\r\n"
    sizes: dict[bytes, int] = {}
    for _ in range(12):
        key, kind = dice.choice(KEYS), dice.random()
        if kind < 0.4:
            value = long_value(dice)
            request += dice.choice([b"set %s 7 0 %d\r\n%s\r\n", b"set %s 0 0 %d noreply\r\n%s\r\n", b"ms %s %d k\r\n%s\r\n"]) % (
                (key, len(value), value)
            )
            sizes[key] = len(value)
        elif kind < 0.65:
            value = long_value(dice, VALUE_BYTES_MAX - sizes.get(key, 0))
            form = [b"append %s 0 0 %d\r\n%s\r\n", b"prepend %s 0 0 %d\r\n%s\r\n", b"ms %s %d MA\r\n%s\r\n", b"ms %s %d MP\r\n%s\r\n"]
            request += dice.choice(form) % (key, len(value), value)
            if key in sizes:
                sizes[key] += len(value)
        elif kind < 0.7:
            request += b"set %s 0 0 %d\r\n%sxx" % (key, PIECE + 2, b"v" * (PIECE + 2)) + b"\r\n"  # a wrong end of the value
            sizes.pop(key, None)
        else:
            form = [b"get %s\r\n", b"get %s a b\r\n", b"gats 100 %s\r\n", b"mg %s s v f k\r\n", b"mg %s s t\r\n", b"touch %s 50\r\n"]
            request += dice.choice(form) % key
    return request + b"".join(b"get %s\r\n" % key for key in KEYS)


def binary_conversation(dice: random.Random) -> bytes:
    request = frame(0x08)
    sizes: dict[bytes, int] = {}
    for _ in range(12):
        key, kind = dice.choice(KEYS), dice.random()
        if kind < 0.4:
            value = long_value(dice)
            request += frame(dice.choice([0x01, 0x11]), struct.pack(">Ii", 7, 0), key, value)
            sizes[key] = len(value)
        elif kind < 0.65:
            value = long_value(dice, VALUE_BYTES_MAX - sizes.get(key, 0))
            request += frame(dice.choice([0x0E, 0x0F, 0x19, 0x1A]), b"", key, value)
            if key in sizes:
                sizes[key] += len(value)
        elif kind < 0.9:
            request += frame(dice.choice([0x00, 0x09, 0x0C, 0x0D]), b"", key)
        else:
            request += frame(dice.choice([0x1C, 0x1D, 0x23]), struct.pack(">i", 100), key)
    return request + b"".join(frame(0x0C, b"", key) for key in KEYS) + frame(0x07)


def short_answers(answer: bytes) -> list[tuple[bytes, int, int, bytes]]:
    """`binary_answers` with a digest in place of each body, so that a difference is shown in a line."""
    return [(head, cas, len(body), hashlib.sha1(body).digest()[:4]) for head, _, cas, body in binary_answers(answer)]


def ask_both(stock: tuple[str, int], request: bytes) -> tuple[bytes, bytes]:
    argv = [REPLAY, str(VALUE_BYTES_MAX)]
    ours = subprocess.run(argv, input=request, stdout=subprocess.PIPE, check=True, timeout=ANSWER_SECONDS).stdout
    return ours, ask_stock(stock, request)


@pytest.mark.parametrize("number", range(CONVERSATIONS))
def test_long_values_are_answered_alike_in_text(stock: tuple[str, int], number: int) -> None:
    request = text_conversation(random.Random(f"long text {number}"))
    ours, theirs = ask_both(stock, request)
    compare(without_cas(ours), without_cas(theirs), request[:40], number)


@pytest.mark.parametrize("number", range(CONVERSATIONS))
def test_long_values_are_answered_alike_in_binary(stock: tuple[str, int], number: int) -> None:
    request = binary_conversation(random.Random(f"long binary {number}"))
    ours, theirs = ask_both(stock, request)
    compare(short_answers(ours), short_answers(theirs), request[:40], number)
