# SPDX-License-Identifier: BSL-1.0
"""How the benchmark of neap-trace finds the instructions that belong to it."""

from collections import Counter
from pathlib import Path

from tools.bench.linux_log import OTHERS, PROGRAMS, TRACER, Functions, growth

SYMBOLS = [(0xFFFFFFFF81000000, "first"), (0xFFFFFFFF81000100, "second")]
CONSOLE = ["linux: memcached listens", "linux: module ixgbe 4096 0xffffffffc0200000"]


def test_each_address_has_its_name(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    lines = ("401000 5", "555555559000 7", "ffffffff810000ff 11", "ffffffff81000100 13", "ffffffffc0200fff 17", "ffffffffc0201000 19 0")
    profile.write_text("\n".join(lines) + "\n")
    assert Functions(SYMBOLS, CONSOLE).count(profile) == {TRACER: 5, OTHERS: 7, "first": 11, "second": 13, "ixgbe": 17, PROGRAMS: 19}


def test_only_functions_that_grow_with_a_run_count_and_in_proportion_to_the_wakeups() -> None:
    with_run = Counter({PROGRAMS: 100, "scheduler": 1050, "shared": 260, OTHERS: 9000})
    assert growth(with_run, Counter({"scheduler": 1000, "shared": 100, OTHERS: 10}), 1.0) == {PROGRAMS: 100, "shared": 160}
    assert growth(with_run, Counter({"scheduler": 500, "shared": 100}), 2.0) == {PROGRAMS: 100, "shared": 60}
