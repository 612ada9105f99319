# SPDX-License-Identifier: BSL-1.0
"""Compares docs/log-format.md with the rows of kernel/log_record.hpp, the kernel's test vector and the decoded values of tools/log/."""

import json
import re
from pathlib import Path

import pytest

from tools.conftest import REPOSITORY
from tools.log import decode, layout, schema, summary
from tools.log.decode import COUNTERS, KIND_NAMES
from tools.log.decode_test import kernel_kinds, kernel_rows

PAGE = (REPOSITORY / "docs/log-format.md").read_text()


def section(name: str) -> list[str]:
    """Returns the lines of the fenced block `name` of docs/log-format.md."""
    return re.search(rf"^```{name}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE).group(1).splitlines()


def vector() -> list[str]:
    return [line for line in (REPOSITORY / "kernel/testdata/log_lines.hex").read_text().splitlines() if not line.startswith("#")]


def example() -> bytes:
    head = b"".join(bytes.fromhex(line[8:]) for line in section("header"))
    raw = head + "".join(section("json")).encode()
    lines = b"".join(bytes.fromhex(line.split(" ", 1)[1]) for line in section("lines"))
    return raw + b" " * (int.from_bytes(head[12:16], "little") - 1 - len(raw)) + b"\n" + lines


def page_rows(form: str) -> list[tuple[int, ...]]:
    """Returns the page's table of a form: offset, type, name, unit or choices, meaning."""
    table = re.search(rf"^### {form.capitalize()}\n.*?\n\n(.*?)\n\n", PAGE, re.DOTALL | re.MULTILINE).group(1).splitlines()[2:]
    return [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]


@pytest.mark.parametrize("form", schema.DEFAULTS["fields"])
def test_the_pages_tables_of_entries_are_the_kernels(form: str) -> None:
    rows = [
        (str(field.offset), kind, name, unit.lstrip(":").replace("|", ", "), meaning)
        for field, (name, kind, unit, meaning) in zip(schema.parse({}).form[form].fields, kernel_rows(form), strict=True)
    ]
    assert page_rows(form) == rows


def test_the_pages_kinds_are_the_kernels() -> None:
    rows = re.findall(r"^\| (\d+) (\w+) \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [(int(number), *rest) for number, *rest in rows] == kernel_kinds()


def test_the_pages_entries_are_those_that_the_kernel_writes() -> None:
    assert section("lines") == vector()


def test_the_example_decodes_to_what_the_page_says(tmp_path: Path) -> None:
    path = tmp_path / "core0.log"
    path.write_bytes(example())
    header = layout.read_header(path)
    assert layout.build_header(0, header.entries, 0, 0, 10**9, json.loads("".join(section("json"))), header.size) == header.raw
    run = decode.load([str(path)])
    core = run.cores[0]
    assert [KIND_NAMES[kind] for kind in core.records["kind"]] == ["start", "interrupt", "poll", "policy", "stop"]
    assert core.records["tsc"].tolist() == [1_000_000_000, 1_000_020_000, 1_000_036_000, 1_000_040_000, 1_001_040_000]
    interrupt, poll = core.records[1], core.records[2]
    assert (interrupt["idle_entries"], interrupt["idle_ticks"], interrupt["rx_frames"]) == (1, 15000, 0)
    received = [poll[f"rx_{name}"] for name in ("descriptors", "frames", "bytes")] + [poll["control_rx_frames"], poll["control_rx_bytes"]]
    sent = [poll[f"tx_{name}"] for name in ("descriptors", "frames", "bytes")] + [poll["control_tx_frames"], poll["control_tx_bytes"]]
    assert (received, sent) == ([3, 2, 1660, 1, 146], [5, 2, 3028, 1, 1514])
    (sleep,) = core.idle
    assert (sleep["tsc_asleep"], sleep["tsc"], sleep["cause"], sleep["vector"]) == (1_000_005_000, 1_000_020_000, 1, 0x31)
    assert core.schema.idle_name(sleep["idle_state"]) == "c6"
    at_start, change = core.settings
    assert [at_start[name] for name in ("changed", "itr_us", "idle", "turbo", "generation")] == ["start", 8, "c6", "on", 7]
    assert (summary.change_text(change), change["generation"]) == ("idle=poll", 8)
    assert core.anchors["run"].tolist() == [3, 3]
    assert [name for name in COUNTERS if core.counters[name].present.any()] == header.about["counters"]
    found = summary.summarise(run)
    assert found["total"]["seconds"] == 0.00104 and found["total"]["instructions"] == 0
    assert found["total"]["joules"] == 0.0 and found["remarks"] == []


def test_the_pages_numbers_are_the_layouts() -> None:
    sections = [re.search(rf"^## {name}\n(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE).group(1) for name in ("Header", "The stream")]
    offsets, _, names = zip(*re.findall(r"^\| (\d+) \| (u8|u16|u32|u64|char\[\d*\]) \| (\w+) \|", "".join(sections), re.MULTILINE))
    assert [int(offset) for offset in offsets[:11]] == [0, 8, 12, 16, 20, 24, 32, 40, 48, 56, 60]
    assert " ".join(names[:11]) == "magic version header_bytes entry_bytes core entries first unwritten tsc_hz json_bytes crc32c"
    assert " ".join(names[12:]) == "magic type core number position payload_bytes payload_crc32c count run boot_id crc32c"
    states = dict(re.findall(r"(\d) (\w+)", re.search(r"`idle_state`: (.*?)\.", PAGE).group(1)))
    assert [states[str(number)] for number in range(8)] == schema.DEFAULTS["idle_states"]
    for bit, name in enumerate(COUNTERS):
        assert f"{bit} {name}" in PAGE


@pytest.mark.parametrize("place", [0, 60, 64, 300])
def test_the_examples_checksum_is_real(tmp_path: Path, place: int) -> None:
    data = bytearray(example())
    data[place] ^= 1
    (tmp_path / "core0.log").write_bytes(data)
    with pytest.raises(layout.Damaged):
        layout.read_header(tmp_path / "core0.log")
