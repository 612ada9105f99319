# SPDX-License-Identifier: BSL-1.0
"""A file with any content is decoded, or refused with one line. The decoded values equal the values of the kernel's structs."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from tools.conftest import REPOSITORY
from tools.errors import Failure
from tools.log import decode, layout, report, schema, study, study_layout, summary, synthetic, tables
from tools.log.crc32c import crc32c
from tools.log.synthetic import SCHEMA, TYPES
from tools.log.trim import trim

SEED = 20261121
HEADER = layout.HEADER_BYTES
FILES, _ = synthetic.make(synthetic.Shape(cores=1, records=200, idle_records=True))
FILE = FILES[0]
KERNEL = (REPOSITORY / "kernel/log_record.hpp").read_text()


def kernel_rows(form: str) -> list[tuple[str, str, str, str]]:
    """Returns the rows of one form in kernel/log_record.hpp: name, type, unit or choices, meaning."""
    body = re.search(rf"#define NEAP_LOG_{form.upper()}\(FIELD, RESERVED\)(.*?)\n\n", KERNEL, re.DOTALL).group(1)
    row = r'FIELD\((\d+), (\w+),\s*"([^"]*)",[\s\\]*"([^"]*)"\)|RESERVED\((\w+), (\d+)\)'
    return [
        (reserved, f"u8x{count}", "", "0") if reserved else (name, f"u{bits}", unit, meaning)
        for bits, name, unit, meaning, reserved, count in re.findall(row, body)
    ]


def kernel_kinds() -> list[tuple[int, str, str, str]]:
    """Returns the rows of kinds in kernel/log_record.hpp: number, name, form, meaning."""
    return [(int(number), *rest) for number, *rest in re.findall(r'KIND\((\d+), (\w+), (\w+), "([^"]*)"\)', KERNEL)]


@pytest.mark.parametrize("form", schema.DEFAULTS["fields"])
def test_the_forms_of_texts_without_fields_are_the_kernels(form: str) -> None:
    assert " ".join(f"{name}:{kind}:{unit}" for name, kind, unit, _ in kernel_rows(form)) == schema.DEFAULTS["fields"][form]


def test_the_kinds_of_texts_without_lines_are_the_kernels() -> None:
    assert {str(number): form for number, _, form, _ in kernel_kinds()} == schema.DEFAULTS["lines"]
    numbers = {name: number for number, name, _, _ in kernel_kinds()}
    assert {number: name for number, name, form, _ in kernel_kinds() if form == "record"} == decode.KIND_NAMES
    ours = (decode.SAMPLE, decode.RESIDENCY, decode.SETTINGS, decode.ANCHOR, decode.CONFIGURED, decode.IDLE, decode.MARK)
    assert ours == tuple(numbers[name] for name in ("sample", "residency", "settings", "anchor", "configured", "idle", "mark"))


def test_a_type_of_64_bytes_has_the_fields_of_its_form_in_their_places() -> None:
    found = TYPES["settings"]
    assert found.itemsize == layout.ENTRY_BYTES
    assert [found.fields[name][1] for name in ("tsc", "kind", "generation", "card_value", "reserved")] == [0, 8, 12, 36, 40]


def test_a_settings_entry_reads_the_same_with_and_without_numpy() -> None:
    entry = np.zeros(1, TYPES["settings"])
    entry["tsc"], entry["kind"], entry["idle_state"], entry["changed"], entry["turbo"] = 7, 18, 6, 3, 1
    entry["generation"], entry["itr_us"], entry["poll_budget_us"], entry["performance"], entry["power_limit_mw"] = 4, 100, 50, 0x1800, 35000
    found = SCHEMA.describe_settings(entry.tobytes())
    assert found == {
        "tsc": 7,
        "generation": 4,
        "changed": "power_limit",
        "idle": "poll",
        "itr_us": 100,
        "poll_budget_us": 50,
        "pstate": "0x1800",
        "power_limit_mw": 35000,
        "turbo": "on",
        "card_value": 0,
        "value": "35W",
    }
    assert summary.change_text(found) == "power_limit=35W"


@pytest.mark.parametrize(
    "changed, value, text",
    [
        *((6, 1024, "rx_ring=1024"), (13, 1, "rsc=on"), (15, 1, "preset=study"), (16, 1 << 16 | 5000, "steer=udp:5000")),
        *((16, 0, "steer=off"), (17, 256, "epp=off"), (17, 128, "epp=128"), (18, 3, "flow_control=both"), (20, 0, "vlan=off")),
        *((20, 7, "vlan=7"), (21, 2, "tso=chain"), (21, 9, "tso=9"), (99, 5, "99=5")),
    ],
)
def test_a_setting_is_written_as_control_takes_it(changed: int, value: int, text: str) -> None:
    entry = np.zeros(1, TYPES["settings"])
    entry["kind"], entry["changed"], entry["card_value"] = 18, changed, value
    assert summary.change_text(SCHEMA.describe_settings(entry.tobytes())) == text


def test_the_checksum_is_crc32c_at_every_length() -> None:
    # RFC 3720, appendix B.4.
    for data, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"123456789", 0xE3069283)):
        assert crc32c(data) == crc
    data = random.Random(SEED).randbytes(5000)
    for length in (0, 1, 63, 64, 511, 512, 513, 575, 576, 4096, 5000):
        byte_by_byte = 0
        for at in range(length):
            byte_by_byte = crc32c(data[at : at + 1], byte_by_byte)
        assert crc32c(data[:length]) == byte_by_byte, length


def changed(at: int, new: bytes) -> bytes:
    return FILE[:at] + new + FILE[at + len(new) :]


def with_checksum(raw: bytes) -> bytes:
    size = int.from_bytes(raw[56:60], "little")
    return raw[:60] + crc32c(raw[:60] + raw[64 : 64 + size]).to_bytes(4, "little") + raw[64:]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cut off in its header, 0 of at least 4096 bytes"),
        (FILE[:4000], "cut off in its header, 4000 of at least 4096 bytes"),
        (FILE[:16000], "cut off in its header, 16000 of 16384 bytes"),
        *(
            (with_checksum(changed(12, size.to_bytes(4, "little"))), f"it states {size} and 64 bytes")
            for size in (0, 64, 4095, 4097, 6144, 65535, 69632, 1 << 31, (1 << 32) - 1)
        ),
        (with_checksum(changed(12, (8192).to_bytes(4, "little"))), "longer than it should be"),
        (with_checksum(changed(12, (65536).to_bytes(4, "little"))), "of 65536 bytes are there"),
        (b"error: no such core\n", "not a log but the machine's answer 'error: no such core'"),
        (changed(0, b"LOG"), "not a Neap log"),
        (with_checksum(changed(8, b"\x02")), "format version 2, this Neap reads version 1"),
        (changed(48, b"\x01"), "its checksum does not fit"),
        (changed(100, b"\x01"), "its checksum does not fit"),
        (with_checksum(changed(56, b"\xff\xff")), "it states 16384 and 64 bytes with a text of 65535"),
        (with_checksum(changed(64, b"[")), "its text is not what the format says"),
        (with_checksum(changed(48, bytes(8))), "its text is not what the format says"),
        (with_checksum(changed(20, b"\x05")), "its text is not what the format says"),
        (FILE[:-1], "cut off"),
        (FILE[:-64], "cut off"),
        (FILE + b"x", "longer than it should be"),
    ],
)
def test_a_damaged_file_is_refused_with_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "core0.log"
    path.write_bytes(content)
    with pytest.raises(layout.Damaged) as caught:
        decode.load([str(path)])
    assert said in caught.value.message and str(path) in caught.value.message and "\n" not in caught.value.report()


def test_random_damage_is_refused_or_decoded_but_never_a_traceback(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "core0.log"
    refused = 0
    for turn in range(300):
        content = bytearray(FILE)
        if turn % 3 == 0:
            content = content[: chance.randrange(len(content))]
        for _ in range(chance.randrange(1, 20)):
            content[chance.randrange(len(content) or 1) : 0] = b"" if not content else bytes([chance.randrange(256)])
        if turn % 3 == 1:
            content = bytearray(FILE)
            content[chance.randrange(HEADER)] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(content))
        try:
            summary.summarise(decode.load([str(path)]))
        except Failure:
            refused += 1
    assert refused > 200


def test_random_entries_in_a_whole_file_are_only_strange(tmp_path: Path) -> None:
    chance = np.random.default_rng(SEED)
    header = layout.parse_header(FILE[:HEADER], "a test")
    path = tmp_path / "core0.log"
    kinds = np.array([0, 1, 1, 1, 2, 3, 4, 5, 16, 17, 18, 19, 20, 20, 32, 33, 34, 77], np.uint8)
    for turn in range(40):
        count = int(chance.integers(0, 60))
        entries = chance.integers(0, 256, (count, layout.ENTRY_BYTES), np.uint8)
        if turn % 2 and count:
            entries[:, 8] = chance.choice(kinds, count)
            entries[:, 6:8] = 0  # clears the TSC's two highest bytes, so that all times are within a few years
        path.write_bytes(layout.build_header(0, count, 0, 0, header.tsc_hz, header.about) + entries.tobytes())
        run = decode.load([str(path)])
        summary.text(summary.summarise(run))
        report.build([report.NamedRun("", run, [])]) if turn % 10 == 1 else None
        core = trim(run.cores[0])
        for made_for in study_layout.LAYOUTS.values():
            study.table(core, None, 1.0, core.begin_tsc, made_for)
        for which in tables.TABLES:
            assert sum(1 for _ in tables.tables(run, which, False)) == 1


def test_files_of_different_runs_and_doubles_are_refused(tmp_path: Path) -> None:
    others, _ = synthetic.make(synthetic.Shape(cores=1, records=200, run=2))
    (tmp_path / "core0.log").write_bytes(FILE)
    (tmp_path / "copy.log").write_bytes(FILE)
    (tmp_path / "other.log").write_bytes(others[0])
    with pytest.raises(Failure, match="core 0 is there twice"):
        decode.load([str(tmp_path / "core0.log"), str(tmp_path / "copy.log")])
    with pytest.raises(Failure, match="are of different runs"):
        decode.load([str(tmp_path / "core0.log"), str(tmp_path / "other.log")])
    with pytest.raises(Failure, match="cannot read .*: No such file"):
        decode.load([str(tmp_path / "none.log")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(Failure, match="holds no whole log"):
        decode.load([str(tmp_path / "empty")])
