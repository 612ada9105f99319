# SPDX-License-Identifier: BSL-1.0
"""TCP has no message boundaries: a request may be split at any byte, and any number of requests may arrive at once."""

import random

import pytest
from servers import Server

# Each kind of line and data block, with its answer.
CONVERSATION = [
    (b"set cut 5 0 12\r\nhello\r\nworld\r\n", b"STORED\r\n"),
    (b"get cut\r\n", b"VALUE cut 5 12\r\nhello\r\nworld\r\nEND\r\n"),
    (b"get none cut none\r\n", b"VALUE cut 5 12\r\nhello\r\nworld\r\nEND\r\n"),
    (b"add cut 0 0 1\r\nx\r\n", b"NOT_STORED\r\n"),
    (b"append cut 0 0 1\r\n!\r\n", b"STORED\r\n"),
    (b"set quiet 0 0 2 noreply\r\n41\r\n", b""),
    (b"incr quiet 1\r\n", b"42\r\n"),
    (b"touch cut 0\r\n", b"TOUCHED\r\n"),
    (b"bogus command line\r\n", b"ERROR\r\n"),
    (b"cas cut 0 0 3 1\r\nabc\r\n", b"EXISTS\r\n"),
    (b"delete cut\r\n", b"DELETED\r\n"),
    (b"delete quiet\r\n", b"DELETED\r\n"),
]
REQUEST = b"".join(request for request, _ in CONVERSATION)
ANSWER = b"".join(answer for _, answer in CONVERSATION)


def test_a_request_may_be_split_at_every_byte(server: Server) -> None:
    with server.connect() as wire:
        wire.ask(REQUEST, ANSWER)
        for cut in range(1, len(REQUEST)):
            wire.send_pieces([REQUEST[:cut], REQUEST[cut:]])
            wire.expect(ANSWER, b"cut at %d: " % cut + REQUEST[max(0, cut - 30) : cut])


def test_every_byte_may_be_a_segment_of_its_own(server: Server) -> None:
    with server.connect() as wire:
        wire.send_pieces(REQUEST[at : at + 1] for at in range(len(REQUEST)))
        wire.expect(ANSWER, REQUEST)


def test_random_pieces_of_many_conversations(server: Server) -> None:
    generator = random.Random(82599)
    with server.connect() as wire:
        for _ in range(30):
            rounds = generator.randint(1, 20)
            stream = REQUEST * rounds
            pieces, at = [], 0
            while at < len(stream):
                length = generator.choice([1, 2, 7, 100, 1460, 5000])
                pieces.append(stream[at : at + length])
                at += length
            wire.send_pieces(pieces, 0)
            wire.expect(ANSWER * rounds, b"random pieces")


def test_a_large_value_in_small_pieces(server: Server) -> None:
    value = random.Random(1).randbytes(100_000)
    stream = b"set pieces 0 0 %d\r\n%s\r\n" % (len(value), value)
    with server.connect() as wire:
        wire.send_pieces((stream[at : at + 700] for at in range(0, len(stream), 700)), 0)
        wire.expect(b"STORED\r\n")
        assert wire.fetch(b"pieces") == value


def test_a_thousand_gets_in_one_write(server: Server) -> None:
    with server.connect() as wire:
        for number in range(1000):
            wire.send(b"set pipe-%d 0 0 20 noreply\r\n%020d\r\n" % (number, number))
        request = b"".join(b"get pipe-%d\r\n" % number for number in range(1000))
        answer = b"".join(b"VALUE pipe-%d 0 20\r\n%020d\r\nEND\r\n" % (number, number) for number in range(1000))
        for _ in range(5):
            wire.ask(request, answer)


def test_a_thousand_keys_in_one_get(server: Server) -> None:
    with server.connect() as wire:
        wire.store(b"long-get-" + b"k" * 200, b"v")
        key = b"long-get-" + b"k" * 200
        wire.ask(b"get" + (b" " + key) * 1000 + b"\r\n", (b"VALUE " + key + b" 0 1\r\nv\r\n") * 1000 + b"END\r\n")


def test_a_client_that_does_not_read_harms_only_itself(server: Server) -> None:
    """64 MB of answers are requested and not read. The server must neither buffer them all nor stop serving other clients."""
    value = random.Random(2).randbytes(64 << 10)
    with server.connect(60) as slow, server.connect() as other:
        slow.store(b"slow", value)
        slow.send(b"get slow\r\n" * 1000)
        for number in range(200):
            other.store(b"other", b"%d" % number)
            assert other.fetch(b"other") == b"%d" % number
        # The requested answers arrive in full once they are read.
        for _ in range(1000):
            slow.expect(b"VALUE slow 0 %d\r\n" % len(value) + value + b"\r\nEND\r\n", b"get slow")


@pytest.mark.parametrize("requests", [1, 10])
def test_an_answer_is_sent_though_the_client_has_ended_sending(server: Server, requests: int) -> None:
    with server.connect() as wire:
        wire.send(b"set half 0 0 1\r\nx\r\n" + b"get half\r\n" * requests)
        wire.expect(b"STORED\r\n")
        wire.expect(b"VALUE half 0 1\r\nx\r\nEND\r\n" * requests)
        wire.end_sending()
        wire.expect_closed()
