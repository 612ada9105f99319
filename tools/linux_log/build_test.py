# SPDX-License-Identifier: BSL-1.0
"""neap-trace as a file: what it needs, and what it says without a card."""

import json
import struct
import subprocess
from pathlib import Path

import pytest

from tools.linux_log import build
from tools.log.layout import json_bytes_max

RUN_SECONDS = 20
PT_INTERP, PT_DYNAMIC = 3, 2


@pytest.fixture(scope="module")
def program() -> Path:
    return build.program()


def test_it_is_linked_statically(program: Path) -> None:
    # ELF64: the program headers begin at the offset in bytes 32 to 39; their size and number are in bytes 54 to 57.
    content = program.read_bytes()
    (offset,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    kinds = [struct.unpack_from("<I", content, offset + number * size)[0] for number in range(count)]
    assert content[:4] == b"\x7fELF" and PT_INTERP not in kinds and PT_DYNAMIC not in kinds


def test_help_names_each_option(program: Path) -> None:
    made = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=RUN_SECONDS)
    assert made.returncode == 0 and made.stderr == ""
    for word in ("--out", "--listen", "--interface", "--idle", "--seconds", "--token-file", "machine"):
        assert word in made.stdout


def test_the_machine_list_is_one_line_of_json(program: Path) -> None:
    made = subprocess.run([program, "machine"], capture_output=True, text=True, timeout=RUN_SECONDS)
    assert made.returncode == 0 and len(made.stdout.splitlines()) == 1
    assert json.loads(made.stdout)["system"] == "linux"


def test_the_types_leave_room_in_the_header_for_the_rest(tmp_path: Path) -> None:
    build.write_format_text(tmp_path)
    assert len((tmp_path / "format_text.h").read_text()) < json_bytes_max(16384) // 2
