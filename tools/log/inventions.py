# SPDX-License-Identifier: BSL-1.0
"""What a hostile machine, file or BMC says, made up from a random generator: for tools/log/fuzz_collector.py.

Each invention begins with something correct and changes a few places, with checksums that fit, so that readers get past their first checks.
"""

from __future__ import annotations

import json
import random
import struct

from tools.log import layout, synthetic
from tools.log.crc32c import crc32c

HEADER = struct.Struct("<8sIIIIQQQQII")
BLOCK = struct.Struct("<IBBHQQIIQIIQII")
LINE = layout.LINE_BYTES
CORES = 2
NUMBERS = (0, 1, 2, 7, 255, 256, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 47, (1 << 56) - 1, 10**18, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
# JSON as text, so that it need not be what Python would write.
VALUES = (
    *("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "-1", "0.5", "1e15", "true", "null", "{}", "[]", '""', "[[[]]]", '"x"', '"0"'),
    *('"\\u0000"', '"\\u001b[31mred\\u001b[0m"', '"a\\u0007\\r\\nb"', '"\\u202ereversed"', '"\\ud800"', '"../../../outside"', '"=1+1"'),
    *('"</script><script>"', '"\\u00e9\\u00e8"', '"é"', '{"a":{"b":[1,2]}}'),
    *("9" * 25, "9" * 3000, "-" + "9" * 3000, "[" * 900 + "]" * 900, "[" * 1990 + "]" * 1990),
    *(str(number) for number in NUMBERS),
)
ESCAPES = ("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202e", "\x00", "\r", "\t", "\x7f", "é", "\ud800", "", " ")
KINDS = (0, 1, 1, 2, 3, 4, 5, 16, 17, 18, 18, 19, 32, 77, 255)


class Inventor:
    """One case's inventions, from its number alone."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    # ---- headers, files, streams ----

    def text(self, about: dict) -> bytes:
        """A header's JSON: correct, or with values in some places, or filled up to the end of its room."""
        fields = {name: json.dumps(value, separators=(",", ":")) for name, value in about.items()}
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2, 5))):
            name = self.random.choice([*fields, "fields", "new"])
            if self.chance(6):
                fields.pop(name, None)
            else:
                fields[name] = self.random.choice(VALUES)
        if self.chance(12):
            # Written anew, such a text comes out longer than it came in.
            filler = self.random.choice(("é", "\\/", "1e15,", "x", " "))
            room = layout.HEADER_BYTES - layout.JSON_AT - self.random.randrange(3) - len(self._joined(fields).encode()) - 12
            count = max(0, room // len(filler.encode()))
            fields["filler"] = f"[{filler * count}0]" if filler == "1e15," else f'"{filler * count}"'
        return self._joined(fields).encode()

    @staticmethod
    def _joined(fields: dict[str, str]) -> str:
        return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"

    def header(self, core: int, lines: int, first: int = 0) -> bytes:
        text = self.text(synthetic.about(synthetic.Shape(cores=CORES), core))[: layout.HEADER_BYTES - layout.JSON_AT]
        numbers = [core, lines, first, 0, 2_000_000_000]
        if self.chance(8):
            at = self.random.randrange(5)
            numbers[at] = self.random.choice(NUMBERS) & ((1 << 32) - 1 if at == 0 else (1 << 64) - 1)
        head = HEADER.pack(b"NEAPLOG\n", 1, layout.HEADER_BYTES, LINE, *numbers, len(text), 0)[:-4]
        raw = head + struct.pack("<I", crc32c(head + text)) + text
        return (raw + b" " * layout.HEADER_BYTES)[: layout.HEADER_BYTES - 1] + b"\n" if len(raw) < layout.HEADER_BYTES else raw

    def lines(self, correct: bytes) -> bytes:
        """Lines of a run, some of other kinds or with other times and numbers."""
        data = bytearray(correct)
        for _ in range(self.random.choice((0, 0, 1, 3, 20))):
            at = LINE * self.random.randrange(max(1, len(data) // LINE))
            change = self.random.randrange(4)
            if not data:
                break
            if change == 0:
                data[at + 8] = self.random.choice(KINDS)
            elif change == 1:
                data[at : at + 8] = struct.pack("<Q", self.random.choice(NUMBERS))
            elif change == 2:
                place = at + 8 * self.random.randrange(1, 8)
                data[place : place + 8] = struct.pack("<Q", self.random.choice(NUMBERS))
            else:
                data[at : at + LINE] = self.random.randbytes(LINE)
        return bytes(data)

    def file(self, core: int, correct: bytes) -> bytes:
        """A log file, whose size mostly fits its header."""
        lines = self.lines(correct[layout.HEADER_BYTES :])
        return self.damaged(self.header(core, len(lines) // LINE) + lines)

    def damaged(self, data: bytes) -> bytes:
        if self.chance(16) and data:
            at = self.random.randrange(len(data))
            data = data[:at] + bytes([self.random.randrange(256)]) + data[at + 1 :]
        if self.chance(16):
            data = data[: self.random.randrange(len(data) + 1)]
        return data + self.random.randbytes(5) if self.chance(24) else data

    def stream(self, files: list[bytes]) -> bytes:
        """A connection's blocks: lines, headers and ends, some of them changed, missing, doubled or of unknown cores."""
        blocks: list[list] = []
        for core, file in enumerate(files):
            lines = self.lines(file[layout.HEADER_BYTES :])
            count = len(lines) // LINE
            at = 0
            while at < count:
                some = min(count - at, self.random.choice((3, 8, 1000)))
                blocks.append([layout.BLOCK_LINES, core, at, lines[at * LINE : (at + some) * LINE], some])
                at += some
            blocks.append([layout.BLOCK_HEADER, core, 0, self.header(core, count), 0])
            blocks.append([layout.BLOCK_CORE_END, core, count, b"", count])
        blocks.append([layout.BLOCK_END, 0, 0, b"", 0])
        for _ in range(self.random.choice((0, 1, 1, 2, 4))):
            at = self.random.randrange(len(blocks))
            change = self.random.randrange(7)
            if change == 0:
                blocks[at][1] = self.random.choice((0, 1, 2, 3, 200, 255))
            elif change == 1:
                blocks[at][2] = self.random.choice(NUMBERS)
            elif change == 2:
                del blocks[at]
            elif change == 3:
                blocks.insert(at, list(self.random.choice(blocks)))
            elif change == 4:
                blocks.insert(
                    at, [layout.BLOCK_GAP, self.random.randrange(4), self.random.choice(NUMBERS), b"", self.random.choice(NUMBERS)]
                )
            elif change == 5:
                core = self.random.choice((2, 3, 77, 255))
                blocks.insert(at, [layout.BLOCK_LINES, core, self.random.choice(NUMBERS), bytes(LINE * 2), 2])
            else:
                blocks[at][0] = self.random.choice((0, 1, 2, 3, 4, 5, 6, 7, 255))
            if not blocks:
                break
        run, boot = self.random.choice((1, 1, 1, 1, 1, 1, 1, 2)), int(synthetic.BOOT_ID, 16)
        built = []
        for number, (kind, core, position, payload, count) in enumerate(blocks):
            head = BLOCK.pack(
                layout.BLOCK_MAGIC, kind, 0, core, number, position, len(payload), crc32c(payload), count, run, 0, boot, 0, 0
            )[:-4]
            built.append(head + struct.pack("<I", crc32c(head)) + payload)
        return self.damaged(b"".join(built))

    # ---- answers of control ----

    def answer(self, correct: str) -> bytes:
        """One line of control's, changed by words that a terminal or a parser may stumble over."""
        text = correct
        for _ in range(self.random.choice((0, 1, 1, 2, 5))):
            at = self.random.randrange(len(text) + 1)
            piece = self.random.choice(
                (*ESCAPES, *map(str, NUMBERS), "9" * 3000, "9" * 5000, "=", ";", " ", "٣", "\\x1b", "next=", "now_ns=")
            )
            text = text[:at] + piece + text[at + self.random.choice((0, 0, 1, 5)) :]
        return text.replace("\n", " ").encode("utf-8", "surrogatepass") + b"\n"

    # ---- other texts ----

    def toml(self) -> str:
        """A machines file with hostile values, keys and depths."""
        values = (
            *(
                '"x"',
                '"\\u0000"',
                '"\\u001b[31m"',
                "9" * 5000,
                "9" * 3000,
                "inf",
                "nan",
                "-1",
                "true",
                "1979-05-27",
                "[]",
                "{}",
                '"""\n"""',
            ),
            *("[" * 2000, "{a=" * 900, "1e400", "0x" + "f" * 5000, '"' + "é" * 300 + '"'),
        )
        lines = ['boot = "memcached"', "timeout_s = 3", "[words]", 'memcached = "memory=4G"', "[machines.rack1]", 'serial = "S1"']
        lines += ['words = "itr=8us"', "[machines.rack1.bmc]", 'address = "10.0.0.1"', 'user = "a"', 'password_file = "/nothing"']
        for _ in range(self.random.choice((0, 1, 1, 2))):
            at = self.random.randrange(len(lines))
            change = self.random.randrange(5)
            key = lines[at].partition(" = ")[0]
            if change == 0:
                lines[at] = f"{key} = {self.random.choice(values)}"
            elif change == 1:
                lines[at] = f'"\\u001b[2J{at}" = 1'
            elif change == 2:
                lines[at] = f"{'a.' * self.random.choice((3, 100, 2000, 8000))}b = 1"
            elif change == 3:
                lines.insert(at, f"[{'a.' * self.random.choice((3, 100, 2000))}b]")
            else:
                lines[at] = lines[at][: self.random.randrange(len(lines[at]) + 1)] + self.random.choice(ESCAPES)
        return "\n".join(lines)

    def json_text(self, fields: dict) -> str:
        """A JSON object of another program's."""
        texts = {name: json.dumps(value) for name, value in fields.items()}
        for _ in range(self.random.choice((0, 1, 2))):
            texts[self.random.choice([*texts])] = self.random.choice(VALUES)
        return self._joined(texts) if not self.chance(12) else self.random.choice(VALUES)

    def environment(self) -> dict[str, str]:
        """Passwords of other machines that a user may have exported."""
        names = ("IPMITOOL_PASSWORD", "IPMI_PASSWORD", "IPMI_KGKEY")
        return {name: "another" for name in names if self.chance(2)}
