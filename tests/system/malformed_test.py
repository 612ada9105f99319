# SPDX-License-Identifier: BSL-1.0
"""Input that no client should send. It gets the protocol's own error, does not affect other clients, and never crashes the machine."""

import contextlib
import random
import re
import time

import pytest
from servers import Server
from wire import Closed, Wire, binary_request

BAD_FORMAT = rb"CLIENT_ERROR bad command line format.*"
NOT_A_COMMAND = rb"ERROR.*"
CLIENT_ERROR = rb"CLIENT_ERROR .*"
ANY_ERROR = rb"(?:ERROR|CLIENT_ERROR .*|SERVER_ERROR .*)"
TOO_LARGE = rb"SERVER_ERROR object too large for cache"
LONG_KEY = b"k" * 251
# If a line is refused and its data block follows, the server may parse that block as commands, which causes some more errors.
STRAY_ERRORS_MAX = 3

CATALOGUE = {
    "no command": (b"\r\n", NOT_A_COMMAND),
    "blanks": (b"   \r\n", NOT_A_COMMAND),
    "unknown command": (b"frobnicate k\r\n", NOT_A_COMMAND),
    "command in capitals": (b"GET k\r\n", NOT_A_COMMAND),
    "command with a tail": (b"getx k\r\n", NOT_A_COMMAND),
    "get without a key": (b"get\r\n", NOT_A_COMMAND),
    "gets without a key": (b"gets \r\n", NOT_A_COMMAND),
    "get of a long key": (b"get " + LONG_KEY + b"\r\n", CLIENT_ERROR),
    "get of a long key among others": (b"get a " + LONG_KEY + b" b\r\n", CLIENT_ERROR),
    "get of a very long key": (b"get " + b"k" * 5000 + b"\r\n", CLIENT_ERROR),
    "set without anything": (b"set\r\n", NOT_A_COMMAND),
    "set with too few words": (b"set k 0 0\r\n", NOT_A_COMMAND),
    "set of a long key": (b"set " + LONG_KEY + b" 0 0 1\r\nx\r\n", CLIENT_ERROR),
    "set with bad flags": (b"set k abc 0 1\r\nx\r\n", BAD_FORMAT),
    "set with negative flags": (b"set k -1 0 1\r\nx\r\n", BAD_FORMAT),
    "set with a bad time": (b"set k 0 abc 1\r\nx\r\n", BAD_FORMAT),
    "set with a bad size": (b"set k 0 0 abc\r\nx\r\n", BAD_FORMAT),
    "set with a negative size": (b"set k 0 0 -1\r\n", BAD_FORMAT),
    "set with a size of 2^32 - 1": (b"set k 0 0 4294967295\r\n", CLIENT_ERROR),
    "set with a size of 2^64": (b"set k 0 0 18446744073709551616\r\n", CLIENT_ERROR),
    "set with a size of 30 digits": (b"set k 0 0 " + b"9" * 30 + b"\r\n", CLIENT_ERROR),
    "set with a longer data block": (b"set k 0 0 3\r\nabcdef\r\n", rb"CLIENT_ERROR bad data chunk"),
    "set with a shorter data block": (b"set k 0 0 9\r\nabc\r\nget k\r\n", rb"CLIENT_ERROR bad data chunk"),
    "cas without a number": (b"cas k 0 0 1\r\nx\r\n", NOT_A_COMMAND),
    "cas with a bad number": (b"cas k 0 0 1 abc\r\nx\r\n", BAD_FORMAT),
    "incr without a number": (b"incr k\r\n", NOT_A_COMMAND),
    "incr by a word": (b"incr k abc\r\n", rb"CLIENT_ERROR invalid numeric delta argument"),
    "incr by a negative number": (b"incr k -1\r\n", rb"CLIENT_ERROR invalid numeric delta argument"),
    "incr by more than 64 bits": (b"incr k 18446744073709551616\r\n", rb"CLIENT_ERROR invalid numeric delta argument"),
    "incr of a long key": (b"incr " + LONG_KEY + b" 1\r\n", CLIENT_ERROR),
    "touch without a time": (b"touch k\r\n", NOT_A_COMMAND),
    "touch with a bad time": (b"touch k abc\r\n", rb"CLIENT_ERROR invalid exptime argument"),
    "delete without a key": (b"delete\r\n", NOT_A_COMMAND),
    "delete with a time": (b"delete k 10\r\n", BAD_FORMAT),
    "delete of a long key": (b"delete " + LONG_KEY + b"\r\n", CLIENT_ERROR),
    "flush_all with a bad time": (b"flush_all abc\r\n", CLIENT_ERROR),
    "verbosity without a level": (b"verbosity\r\n", NOT_A_COMMAND),
    "verbosity with a bad level": (b"verbosity abc\r\n", BAD_FORMAT),
    "zero bytes": (b"\0\0\0\0\r\n", NOT_A_COMMAND),
    "control characters": (b"\x01\x02\x03\x7f\xff\r\n", NOT_A_COMMAND),
}  # fmt: skip


def read_until_version(wire: Wire) -> None:
    """Requests the version. Before the answer, at most STRAY_ERRORS_MAX error lines may come."""
    wire.send(b"version\r\n")
    for _ in range(STRAY_ERRORS_MAX + 1):
        line = wire.read_line()
        if line.startswith(b"VERSION "):
            return
        assert re.fullmatch(ANY_ERROR, line), f"after an error came {line!r}"
    raise AssertionError("the connection is out of step: no answer to `version`")


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_bad_line_gets_its_error_and_the_connection_goes_on(server: Server, name: str) -> None:
    request, wanted = CATALOGUE[name]
    with server.connect() as wire:
        wire.send(request)
        line = wire.read_line()
        assert re.fullmatch(wanted, line), f"{name}: {request[:80]!r} answered {line!r}"
        read_until_version(wire)


@pytest.mark.parametrize("excess", [1, 4096, 2_000_000])
def test_a_value_over_the_limit_is_swallowed(server: Server, excess: int) -> None:
    size = server.value_limit_bytes + excess
    with server.connect() as wire:
        wire.store(b"large", b"small")
        wire.send(b"set large 0 0 %d\r\n" % size)
        sent = 0
        while sent < size:
            piece = min(50_000, size - sent)
            wire.send(b"x" * piece)
            sent += piece
        wire.send(b"\r\n")
        assert re.fullmatch(TOO_LARGE, wire.read_line())
        # No byte of the value was parsed as a command, and no stale value is left.
        wire.ask(b"get large\r\n", b"END\r\n")
        wire.store(b"large", b"again")


def test_an_append_beyond_the_limit_is_refused(server: Server) -> None:
    size = server.value_limit_bytes * 2 // 3
    with server.connect() as wire:
        wire.store(b"grows", b"x" * size)
        line = wire.ask_line(b"append grows 0 0 %d\r\n" % size + b"y" * size + b"\r\n")
        assert line.startswith((b"SERVER_ERROR", b"NOT_STORED")), line
        assert wire.fetch(b"grows") in (None, b"x" * size)


@pytest.mark.parametrize("start", [b"", b"set ", b"set k 0 0 ", b"incr k ", b"\x01"])
def test_a_megabyte_without_a_line_end(server: Server, start: bytes) -> None:
    """A line of a megabyte must not be buffered without limit: the server closes the connection, or answers with an error."""
    with server.connect() as wire:
        ended = False
        try:
            for _ in range(64):
                wire.send(start + b"A" * (16 << 10) if _ == 0 else b"A" * (16 << 10))
            line = wire.ask_line(b"\r\n")
            assert re.fullmatch(ANY_ERROR, line), line[:100]
        except Closed:
            ended = True
        if not ended:
            with contextlib.suppress(Closed):
                read_until_version(wire)


def test_random_text_junk(server: Server) -> None:
    generator = random.Random(1)
    words = b"get set incr cas delete touch noreply stats 0 -1 4294967296".split() + [b"k" * 300, b"\r", b"\0", b"\xff"]
    for _ in range(60):
        with server.connect() as wire, contextlib.suppress(Closed):
            for _line in range(40):
                line = b" ".join(generator.choice(words) for _ in range(generator.randint(1, 8)))
                wire.send(line + generator.choice([b"\r\n", b"\n", b"\r\n\r\n"]))
            wire.send(b"quit\r\n")


def test_random_binary_junk(server: Server) -> None:
    generator = random.Random(2)
    for _ in range(150):
        with server.connect() as wire, contextlib.suppress(Closed):
            wire.send(generator.choice([b"\x80", b"\x81", b""]) + generator.randbytes(generator.randint(1, 3000)))
            if generator.random() < 0.5:
                wire.reset()


@pytest.mark.parametrize("opcode", [0x00, 0x01, 0x04, 0x05, 0x0E, 0x21, 0x40, 0xFF])
@pytest.mark.parametrize("kind", ["key beyond body", "extras beyond body", "huge body", "huge key", "bad type"])
def test_binary_headers_that_contradict_themselves(server: Server, opcode: int, kind: str) -> None:
    header = bytearray(binary_request(opcode))
    header[2:4], header[4:5], header[8:12] = {
        "key beyond body": (b"\x00\x64", b"\0", b"\0\0\0\x0a"),
        "extras beyond body": (b"\0\0", b"\x80", b"\0\0\0\x0a"),
        "huge body": (b"\x00\x03", b"\x08", b"\xff\xff\xff\xff"),
        "huge key": (b"\xff\xff", b"\0", b"\0\x01\0\0"),
        "bad type": (b"\0\0", b"\0", b"\0\0\0\0"),
    }[kind]
    if kind == "bad type":
        header[5] = 0x77
    with server.connect() as wire, contextlib.suppress(Closed):
        wire.send(bytes(header) + b"0123456789")
        wire.end_sending()
        wire.expect_closed()


def test_half_open_connections_do_not_block_others(server: Server) -> None:
    """A hundred clients stop midway: in a command, in a data block, in a binary header, or before the first byte."""
    starts = [b"", b"ge", b"get k", b"set k 0 0 100\r\nonly a part", b"\x80", binary_request(1, b"k", b"v" * 50, b"\0" * 8)[:40]]
    with contextlib.ExitStack() as stack:
        for number in range(100):
            stack.enter_context(server.connect()).send(starts[number % len(starts)])
        for _ in range(20):
            server.check()
        wait_for_connections(server, minimum=100)  # a client may be connected before the server counts it
    wait_for_connections(server, 10)


def test_resets_in_the_middle_of_a_value_leak_no_connection(server: Server) -> None:
    for number in range(60):
        wire = server.connect()
        wire.send(b"set broken 0 0 200000\r\n" + b"x" * (number * 3000 + 1))
        wire.reset()
    for _ in range(60):
        wire = server.connect()
        wire.store(b"unread", b"y" * 100_000)
        wire.send(b"get unread\r\n" * 20)
        wire.reset()
    wait_for_connections(server, 10)
    with server.connect() as wire:
        assert wire.fetch(b"broken") is None


def wait_for_connections(server: Server, maximum: int = 1000, *, minimum: int = 0, seconds: float = 60) -> None:
    """Waits until the server reports at least `minimum` and at most `maximum` open connections."""
    with server.connect() as wire:
        deadline = time.monotonic() + seconds
        while not minimum <= (count := int(wire.statistics()["curr_connections"])) <= maximum:
            assert time.monotonic() < deadline, f"{count} connections are open"
            time.sleep(0.2)
