# SPDX-License-Identifier: BSL-1.0
"""Compares registers.toml with the header of Linux's driver, from the host's linux-source package. The build cache keeps the header."""

from pathlib import Path

import compare_with_linux
import pytest
import register_table

from tools import cache

TABLE = Path(__file__).parent / "registers.toml"


@pytest.fixture(scope="module")
def header() -> str:
    package, listed = compare_with_linux.newest_package()
    entry = cache.Entry("linux-registers", cache.digest(package, listed))
    with entry.making() as needed:
        if needed:
            (entry.path / "ixgbe_type.h").write_text(compare_with_linux.fetch_header(package))
    return (entry.path / "ixgbe_type.h").read_text()


def test_every_register_that_linux_has_has_linuxs_offset(header: str) -> None:
    shared, differences = compare_with_linux.compare(register_table.parse(TABLE.read_text()), header)
    assert differences == []
    assert shared >= compare_with_linux.SHARED_MIN
