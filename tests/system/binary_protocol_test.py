# SPDX-License-Identifier: BSL-1.0
"""The served commands of the binary protocol (get, set, delete, noop, version, quit and their quiet forms), as specified in
doc/protocol-binary.txt."""

import struct

import pytest
from servers import Server
from wire import BinaryAnswer, Wire, binary_request, read_binary

GET, SET, DELETE, QUIT, GETQ, NOOP, VERSION, GETK, GETKQ = 0x00, 0x01, 0x04, 0x07, 0x09, 0x0A, 0x0B, 0x0C, 0x0D
SETQ, DELETEQ, QUITQ = 0x11, 0x14, 0x17
OK, KEY_NOT_FOUND, KEY_EXISTS, TOO_LARGE, UNKNOWN_COMMAND = 0x00, 0x01, 0x02, 0x03, 0x81


@pytest.fixture
def wire(server: Server):
    with server.connect() as text:
        text.ask(b"flush_all\r\n", b"OK\r\n")
    with server.connect() as connection:
        yield connection


def call(wire: Wire, opcode: int, key: bytes = b"", value: bytes = b"", extras: bytes = b"", **fields: int) -> BinaryAnswer:
    wire.send(binary_request(opcode, key, value, extras, **fields))
    answer = read_binary(wire)
    assert (answer.opcode, answer.opaque) == (opcode, fields.get("opaque", 0))
    return answer


def set_extras(flags: int = 0, expires: int = 0) -> bytes:
    return struct.pack("!II", flags, expires)


def test_set_get_and_delete(wire: Wire) -> None:
    assert call(wire, GET, b"k", opaque=1).status == KEY_NOT_FOUND
    stored = call(wire, SET, b"k", b"value", set_extras(0xDEADBEEF), opaque=0x01020304)
    assert (stored.status, stored.extras, stored.key, stored.value) == (OK, b"", b"", b"") and stored.unique != 0
    got = call(wire, GET, b"k", opaque=3)
    assert (got.status, got.extras, got.key, got.value) == (OK, b"\xde\xad\xbe\xef", b"", b"value") and got.unique == stored.unique
    with_key = call(wire, GETK, b"k")
    assert (with_key.key, with_key.value, with_key.extras) == (b"k", b"value", b"\xde\xad\xbe\xef")
    assert call(wire, DELETE, b"k").status == OK
    assert call(wire, DELETE, b"k").status == KEY_NOT_FOUND
    assert call(wire, GETK, b"k").status == KEY_NOT_FOUND


def test_set_and_delete_compare_a_cas_number(wire: Wire) -> None:
    first = call(wire, SET, b"c", b"1", set_extras()).unique
    second = call(wire, SET, b"c", b"2", set_extras(), unique=first)
    assert second.status == OK and second.unique != first
    assert call(wire, SET, b"c", b"3", set_extras(), unique=first).status == KEY_EXISTS
    assert call(wire, SET, b"missing", b"3", set_extras(), unique=first).status == KEY_NOT_FOUND
    assert call(wire, DELETE, b"c", unique=first).status == KEY_EXISTS
    assert call(wire, GET, b"c").value == b"2"
    assert call(wire, DELETE, b"c", unique=second.unique).status == OK


def test_quiet_forms_answer_only_what_their_loud_forms_would_not_expect(wire: Wire) -> None:
    wire.send(
        binary_request(SETQ, b"a", b"1", set_extras(), opaque=1)
        + binary_request(GETQ, b"missing", opaque=2)
        + binary_request(GETKQ, b"missing", opaque=3)
        + binary_request(GETQ, b"a", opaque=4)
        + binary_request(GETKQ, b"a", opaque=5)
        + binary_request(DELETEQ, b"a", opaque=6)
        + binary_request(DELETEQ, b"a", opaque=7)
        + binary_request(SETQ, b"a", b"1", set_extras(), opaque=8, unique=12345)
        + binary_request(NOOP, opaque=9)
    )
    answers = [read_binary(wire) for _ in range(5)]
    assert [(one.opcode, one.opaque, one.status, one.key, one.value[:1]) for one in answers if one.status == OK] == [
        (GETQ, 4, OK, b"", b"1"), (GETKQ, 5, OK, b"a", b"1"), (NOOP, 9, OK, b"", b""),
    ]  # fmt: skip
    assert [(one.opcode, one.opaque, one.status) for one in answers if one.status != OK] == [
        (DELETEQ, 7, KEY_NOT_FOUND), (SETQ, 8, KEY_NOT_FOUND),
    ]  # fmt: skip
    wire.expect_silence(0.3)


def test_noop_version_and_quit(server: Server) -> None:
    with server.connect() as wire:
        assert call(wire, NOOP, opaque=77).status == OK
        assert call(wire, VERSION).value
        assert call(wire, QUIT, opaque=5).status == OK
        wire.expect_closed()
    with server.connect() as wire:
        wire.send(binary_request(SETQ, b"q", b"1", set_extras()) + binary_request(QUITQ))
        wire.expect_closed()
    with server.connect() as wire:
        assert wire.fetch(b"q") == b"1"


def test_both_protocols_see_the_same_items(server: Server, wire: Wire) -> None:
    call(wire, SET, b"both", b"from binary", set_extras(42))
    with server.connect() as text:
        text.ask(b"get both\r\n", b"VALUE both 42 11\r\nfrom binary\r\nEND\r\n")
        text.store(b"both", b"from text", flags=7)
    assert call(wire, GET, b"both").value == b"from text"


@pytest.mark.parametrize("size", [0, 1, 1400, 70_000, 1 << 20])
def test_values_of_all_sizes(wire: Wire, size: int) -> None:
    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert call(wire, SET, b"sized", value, set_extras()).status == OK
    assert call(wire, GET, b"sized").value == value


def test_a_value_over_the_limit_is_refused_and_swallowed(server: Server, wire: Wire) -> None:
    assert call(wire, SET, b"big", b"x" * (server.value_limit_bytes + 1000), set_extras()).status == TOO_LARGE
    assert call(wire, GET, b"big").status == KEY_NOT_FOUND
    assert call(wire, NOOP).status == OK


def test_an_unknown_command_is_refused_by_name(wire: Wire) -> None:
    answer = call(wire, 0x7E, opaque=9)
    assert answer.status == UNKNOWN_COMMAND and answer.opaque == 9
    assert call(wire, NOOP).status == OK


def test_requests_split_at_every_byte(wire: Wire) -> None:
    request = binary_request(SET, b"cut", b"some value", set_extras(1), opaque=1) + binary_request(GETK, b"cut", opaque=2)
    for cut in range(1, len(request)):
        wire.send_pieces([request[:cut], request[cut:]])
        stored, got = read_binary(wire), read_binary(wire)
        assert (stored.opcode, stored.status, stored.opaque) == (SET, OK, 1), f"cut at {cut}"
        assert (got.opcode, got.status, got.opaque, got.key, got.value) == (GETK, OK, 2, b"cut", b"some value"), f"cut at {cut}"


def test_a_thousand_gets_in_one_write(wire: Wire) -> None:
    call(wire, SET, b"pipe", b"v" * 100, set_extras())
    wire.send(b"".join(binary_request(GET, b"pipe", opaque=number) for number in range(1000)))
    for number in range(1000):
        answer = read_binary(wire)
        assert (answer.opaque, answer.value) == (number, b"v" * 100)
