# SPDX-License-Identifier: BSL-1.0
"""Input of hostile machines, files and BMCs from a random generator, for tools/log/fuzz_collector.py.

Each input is correct data with a few changes and right checksums, so that readers get past their first checks.
"""

import json
import random
import re
import struct

from tools.log import layout, schema, synthetic, synthetic_linux
from tools.log.crc32c import crc32c

HEADER = struct.Struct("<8sIIIIQQQQII")
ENTRY = layout.ENTRY_BYTES
CORES = 2
NUMBERS = (0, 1, 2, 7, 255, 256, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 47, (1 << 56) - 1, 10**18, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
# JSON values as text, which may differ from the text that Python would write.
VALUES = (
    *("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "-1", "0.5", "1e15", "true", "null", "{}", "[]", '""', "[[[]]]", '"x"', '"0"'),
    *('"\\u0000"', '"\\u001b[31mred\\u001b[0m"', '"a\\u0007\\r\\nb"', '"\\u202ereversed"', '"\\ud800"', '"../../../outside"', '"=1+1"'),
    *('"</script><script>"', '"\\u00e9\\u00e8"', '"é"', '{"a":{"b":[1,2]}}'),
    *("9" * 25, "9" * 3000, "-" + "9" * 3000, "[" * 900 + "]" * 900, "[" * 1990 + "]" * 1990, "[" * 30000, '"' + "x" * 17000 + '"'),
    *(
        '{"' + "a" * 70 + '":1}',
        '{"":1}',
        '{"a b":1}',
        '{"=1+1":1}',
        '{"a":1e300}',
        '{"a":[1]}',
        '[{"name":"=1+1"}]',
        '[{"name":7,"hint":"0x1"}]',
    ),
    *('["requests","polls","rx_frames","interrupts","core"]', '{"hz":1,"at_tick_0":18446744073709551615}', '{"hz":0,"at_tick_0":1}'),
    *("[" + ",".join(['{"name":"c1"}'] * 40) + "]", "{" + ",".join(f'"c{number}":{number}' for number in range(1100)) + "}"),
    *(str(number) for number in NUMBERS),
)
# Members that a log of Linux has.
LINUX = ("system", "kernel", "driver", "interface", "tracer", "unknown", "raw_tsc")
ESCAPES = ("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202e", "\x00", "\r", "\t", "\x7f", "é", "\ud800", "", " ")
KINDS = (0, 1, 1, 2, 3, 4, 5, 16, 17, 18, 18, 19, 20, 20, 32, 33, 33, 77, 255)
# Sizes that a header may have, and sizes that are refused.
SIZES = (4096, 8192, 12288, layout.HEADER_BYTES, layout.HEADER_BYTES, 20480, 65536)
WRONG_SIZES = (0, 64, 4095, 4097, 6144, 65535, 69632, 1 << 20, 1 << 31, (1 << 32) - 1)


class Inventor:
    """Makes the input of one case, from the case's seed only."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    # ---- headers, files, streams ----

    def text(self, about: dict, room: int) -> bytes:
        """Returns a header's JSON, which is correct, has some changed values, or is filled up to `room` bytes."""
        if self.chance(2):
            # Without these members, as in an older build's text, there is more room for long values.
            about = {name: value for name, value in about.items() if name not in schema.NAMES}
        elif self.chance(2):
            about = {**about, **self.types(about)}
        fields = {name: json.dumps(value, separators=(",", ":")) for name, value in about.items()}
        for _ in range(self.random.choice((0, 0, 0, 1, 1, 2, 5))):
            name = self.random.choice([*fields, *synthetic.FACTS, "slow", "fields", "new", *LINUX])
            if self.chance(6):
                fields.pop(name, None)
            else:
                fields[name] = self.random.choice(VALUES)
        if self.chance(12):
            # Some of these texts get longer when they are parsed and written again.
            filler = self.random.choice(("é", "\\/", "1e15,", "x", " "))
            left = room - self.random.randrange(3) - len(self._joined(fields).encode()) - 12
            count = max(0, left // len(filler.encode()))
            fields["filler"] = f"[{filler * count}0]" if filler == "1e15," else f'"{filler * count}"'
        return self._joined(fields).encode()

    def types(self, about: dict) -> dict:
        """Returns the types of entries and settings with some words changed, missing, doubled or moved."""
        name = self.random.choice(("lines", "fields", "settings"))
        changed = dict(about[name])
        for _ in range(self.random.choice((1, 1, 2, 5))):
            key = self.random.choice([*changed])
            words = str(changed[key]).split(" ")
            at = self.random.randrange(len(words))
            change = self.random.randrange(6)
            if change == 0:
                words[at] = re.sub(r":u[0-9]+", f":u{self.random.choice((8, 16, 32, 64, 128, '8x3', '8x99', '64x0'))}", words[at])
            elif change == 1:
                del words[at]
            elif change == 2:
                words.insert(at, self.random.choice(words))
            elif change == 3:
                other = self.random.randrange(len(words))
                words[at], words[other] = words[other], words[at]
            elif change == 4:
                words[at] += self.random.choice((":", ":off|on", "::0=off", ":x:9=y|z|w", "|" * 100, "é", "=1+1", ":" * 9))
            else:
                changed[self.random.choice(("0", "7", "16", "18", "255", "256", "-1", "x", "record", "idle"))] = changed.pop(key)
                continue
            changed[key] = " ".join(words)
        return {name: changed}

    @staticmethod
    def _joined(fields: dict[str, str]) -> str:
        return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"

    def header(self, core: int, entries: int, first: int = 0) -> bytes:
        size = self.random.choice(SIZES)
        room = size - layout.JSON_OFFSET
        makes = synthetic_linux if self.chance(4) else synthetic
        text = self.text(makes.about(synthetic.Shape(cores=CORES, facts=self.chance(2)), core), room)[:room]
        stated = self.random.choice(WRONG_SIZES) if self.chance(40) else size
        numbers = [core, entries, first, 0, 2_000_000_000]
        if self.chance(8):
            at = self.random.randrange(5)
            numbers[at] = self.random.choice(NUMBERS) & ((1 << 32) - 1 if at == 0 else (1 << 64) - 1)
        head = HEADER.pack(b"NEAPLOG\n", 1, stated, ENTRY, *numbers, len(text), 0)[:-4]
        raw = head + struct.pack("<I", crc32c(head + text)) + text
        return (raw + b" " * size)[: size - 1] + b"\n" if len(raw) < size else raw

    def entries(self, correct: bytes) -> bytes:
        """Returns `correct`, a run's entries, with changed kinds, times or numbers in some of them."""
        data = bytearray(correct)
        for _ in range(self.random.choice((0, 0, 1, 3, 20))):
            at = ENTRY * self.random.randrange(max(1, len(data) // ENTRY))
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
                data[at : at + ENTRY] = self.random.randbytes(ENTRY)
        return bytes(data)

    def file(self, core: int, correct: bytes) -> bytes:
        """Returns a log file, whose size usually fits its header."""
        entries = self.entries(correct[layout.HEADER_BYTES :])
        return self.damaged(self.header(core, len(entries) // ENTRY) + entries)

    def damaged(self, data: bytes) -> bytes:
        if self.chance(16) and data:
            at = self.random.randrange(len(data))
            data = data[:at] + bytes([self.random.randrange(256)]) + data[at + 1 :]
        if self.chance(16):
            data = data[: self.random.randrange(len(data) + 1)]
        return data + self.random.randbytes(5) if self.chance(24) else data

    def stream(self, files: list[bytes]) -> bytes:
        """Returns a connection's blocks: entries, headers and ends, some of them changed, missing, doubled or of unknown cores."""
        blocks: list[list] = []
        for core, file in enumerate(files):
            entries = self.entries(file[layout.HEADER_BYTES :])
            count = len(entries) // ENTRY
            at = 0
            while at < count:
                some = min(count - at, self.random.choice((3, 8, 1000)))
                blocks.append([layout.BLOCK_ENTRIES, core, at, entries[at * ENTRY : (at + some) * ENTRY], some])
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
                blocks.insert(at, [layout.BLOCK_ENTRIES, core, self.random.choice(NUMBERS), bytes(ENTRY * 2), 2])
            else:
                blocks[at][0] = self.random.choice((0, 1, 2, 3, 4, 5, 6, 7, 255))
            if not blocks:
                break
        run, boot = self.random.choice((1, 1, 1, 1, 1, 1, 1, 2)), int(synthetic.BOOT_ID, 16)
        built = (
            layout.build_block(kind, core, number, position, payload, count, run, boot)
            for number, (kind, core, position, payload, count) in enumerate(blocks)
        )
        return self.damaged(b"".join(built))

    # ---- answers of control ----

    def answer(self, correct: str) -> bytes:
        """Returns an answer line of the control server, with text that is difficult for a terminal or a parser."""
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
        """Returns a machines file with hostile values, keys and depths."""
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
        """Returns a JSON object as text, with some wrong values."""
        texts = {name: json.dumps(value) for name, value in fields.items()}
        for _ in range(self.random.choice((0, 1, 2))):
            texts[self.random.choice([*texts])] = self.random.choice(VALUES)
        return self._joined(texts) if not self.chance(12) else self.random.choice(VALUES)

    def environment(self) -> dict[str, str]:
        return {name: "another" for name in ("IPMITOOL_PASSWORD", "IPMI_PASSWORD", "IPMI_KGKEY") if self.chance(2)}
