# SPDX-License-Identifier: BSL-1.0
"""CRC-32C (Castagnoli; RFC 3720 appendix B.4), fast enough for a log in plain Python.

The standard library has only CRC-32 with another polynomial, and one table look-up per byte processes only 5 MB/s in the interpreter. A CRC
is linear, so all 64-byte entries (lanes) of a block are processed in parallel, the n-th byte of each entry in one step. The interpreter's C
code does the work: `bytes.translate` is the table look-up, and XOR of long integers adds the results. Then the results of the entries are
joined in one short step per entry.
"""

POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits reversed
LANE_BYTES = 64


def _byte_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _byte_table()
# _TABLE split into four tables, one for each byte of its words, because bytes.translate needs tables of bytes.
_PLANES = [bytes(word >> shift & 0xFF for word in _TABLE) for shift in (0, 8, 16, 24)]


def _skip_tables() -> list[list[int]]:
    """Returns one table for each of the four bytes of a CRC register. The table maps the byte's value to its contribution to the register
    after LANE_BYTES zero bytes."""

    def skip(register: int) -> int:
        for _ in range(LANE_BYTES):
            register = _TABLE[register & 0xFF] ^ register >> 8
        return register

    return [[skip(value << shift) for value in range(256)] for shift in (0, 8, 16, 24)]


_SKIP = _skip_tables()


def crc32c(data: bytes, crc: int = 0) -> int:
    """Returns the CRC-32C of `data`. `crc` is the CRC-32C of the bytes before `data`."""
    register = crc ^ 0xFFFFFFFF
    lanes = len(data) // LANE_BYTES
    if lanes >= 8:
        skip0, skip1, skip2, skip3 = _SKIP
        for lane in _lane_registers(data, lanes):
            register = skip0[register & 0xFF] ^ skip1[register >> 8 & 0xFF] ^ skip2[register >> 16 & 0xFF] ^ skip3[register >> 24] ^ lane
        data = data[lanes * LANE_BYTES :]
    for byte in data:
        register = _TABLE[(register ^ byte) & 0xFF] ^ register >> 8
    return register ^ 0xFFFFFFFF


def _lane_registers(data: bytes, lanes: int) -> list[int]:
    """Returns the CRC register's value after the bytes of each lane, if the register was zero before that lane."""
    low = middle = high = top = bytes(lanes)
    number = int.from_bytes
    for offset in range(LANE_BYTES):
        column = data[offset : lanes * LANE_BYTES : LANE_BYTES]
        index = (number(low, "little") ^ number(column, "little")).to_bytes(lanes, "little")
        low = (number(index.translate(_PLANES[0]), "little") ^ number(middle, "little")).to_bytes(lanes, "little")
        middle = (number(index.translate(_PLANES[1]), "little") ^ number(high, "little")).to_bytes(lanes, "little")
        high = (number(index.translate(_PLANES[2]), "little") ^ number(top, "little")).to_bytes(lanes, "little")
        top = index.translate(_PLANES[3])
    return [a | b << 8 | c << 16 | d << 24 for a, b, c, d in zip(low, middle, high, top)]
