# SPDX-License-Identifier: BSL-1.0
"""registers.toml against Linux's own driver: its header comes out of the machine's package of Linux's source, and is kept in the cache."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import compare_with_linux  # noqa: E402
import register_table  # noqa: E402

from tools import cache  # noqa: E402

TABLE = Path(__file__).parent / "registers.toml"


@pytest.fixture(scope="module")
def header() -> str:
    package, listed = compare_with_linux.newest_package()
    entry = cache.Entry("linux-registers", cache.digest(package, listed))
    with entry.making() as needed:
        if needed:
            (entry.path / "ixgbe_type.h").write_text(compare_with_linux.fetch_header(package))
    return (entry.path / "ixgbe_type.h").read_text()


def test_every_register_that_linux_knows_has_linuxs_offset(header: str) -> None:
    shared, differences = compare_with_linux.compare(register_table.parse(TABLE.read_text()), header)
    assert differences == []
    assert shared >= compare_with_linux.LEAST_SHARED
