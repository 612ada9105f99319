# SPDX-License-Identifier: BSL-1.0
"""docs/log-format.md against the kernel's header, the kernel's own vector and what tools/log/ makes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.conftest import REPOSITORY
from tools.log import decode, layout, summary
from tools.log.decode import COUNTERS, KIND_NAMES
from tools.log.decode_test import c_structs

PAGE = (REPOSITORY / "docs/log-format.md").read_text()


def section(name: str) -> list[str]:
    """The lines of a fenced block of the page."""
    return re.search(rf"^```{name}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE).group(1).splitlines()


def vector() -> list[str]:
    lines = (REPOSITORY / "kernel/testdata/log_lines.hex").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def example() -> bytes:
    """The page's example as the file that it describes."""
    head = b"".join(bytes.fromhex(line[8:]) for line in section("header"))
    text = "".join(section("json")).encode()
    raw = head + text
    lines = b"".join(bytes.fromhex(line.split(" ", 1)[1]) for line in section("lines"))
    return raw + b" " * (layout.HEADER_BYTES - 1 - len(raw)) + b"\n" + lines


def test_the_pages_structs_are_the_kernels() -> None:
    shown = {
        name: re.findall(r"(uint\d+_t) (\w+)(?:\[(\d+)\])?;", body)
        for name, body in re.findall(r"struct (\w+) \{\n(.*?)\};", "\n".join(section("c")), re.DOTALL)
    }
    laid_out = {}
    for name, fields in shown.items():
        at = 0
        laid_out[name] = {}
        for kind, field, count in fields:
            width = int(kind.removeprefix("uint").removesuffix("_t")) // 8
            laid_out[name][field] = (at, width * int(count or 1))
            assert at % width == 0, "no gaps"
            at += width * int(count or 1)
        assert at == layout.LINE_BYTES
    assert laid_out == c_structs()


def test_the_pages_lines_are_those_that_the_kernel_writes() -> None:
    assert section("lines") == vector()


def test_the_example_decodes_to_what_the_page_says(tmp_path: Path) -> None:
    path = tmp_path / "core0.log"
    path.write_bytes(example())
    header = layout.read_header(path)
    assert layout.build_header(0, 14, 0, 0, 10**9, json.loads("".join(section("json")))) == header.raw
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
    assert decode.idle_name(sleep["idle_state"]) == "c6"
    at_start, change = core.settings
    assert (at_start["changed"], at_start["itr_us"], at_start["idle"], at_start["turbo"], at_start["generation"]) == (
        "start",
        8,
        "c6",
        "on",
        7,
    )
    assert (summary.change_text(change), change["generation"]) == ("idle=poll", 8)
    assert core.anchors["run"].tolist() == [3, 3]
    assert [name for name in COUNTERS if core.counters[name].present.any()] == header.about["counters"]
    found = summary.summarise(run)
    assert found["total"]["seconds"] == 0.00104 and found["total"]["instructions"] == 0
    assert found["total"]["joules"] == 0.0 and found["remarks"] == []


def test_the_pages_numbers_are_the_layouts() -> None:
    rows = re.findall(r"^\| (\d+) \| (u8|u16|u32|u64|char\[\d*\]) \| (\w+) \|", PAGE, re.MULTILINE)
    head = [(int(offset), name) for offset, _, name in rows[:12]]
    assert head[:11] == list(
        zip(
            (0, 8, 12, 16, 20, 24, 32, 40, 48, 56, 60),
            "magic version header_bytes record_bytes core lines first unwritten tsc_hz json_bytes crc32c".split(),
        )
    )
    assert [
        name for _, _, name in rows[12:]
    ] == "magic type core number position payload_bytes payload_crc32c count run boot_id crc32c".split()
    kinds = {int(number): name for number, name in re.findall(r"^\| (\d+) (\w+) \| Record", PAGE, re.MULTILINE)}
    assert kinds == KIND_NAMES
    states = dict(re.findall(r"(\d) (\w+)", re.search(r"`idle_state`: (.*?)\.", PAGE).group(1)))
    assert [states[str(number)] for number in range(8)] == list(layout.IDLE_STATES)
    for bit, name in enumerate(COUNTERS):
        assert f"{bit} {name}" in PAGE


@pytest.mark.parametrize("place", [0, 60, 64, 300])
def test_the_examples_checksum_is_real(tmp_path: Path, place: int) -> None:
    data = bytearray(example())
    data[place] ^= 1
    (tmp_path / "core0.log").write_bytes(data)
    with pytest.raises(layout.Damaged):
        layout.read_header(tmp_path / "core0.log")
