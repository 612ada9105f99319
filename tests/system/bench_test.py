# SPDX-License-Identifier: BSL-1.0
"""What is promised of costs, counted in instructions: as exact as a byte count, whatever else this machine does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import bench, build
from tools.errors import Failure
from tools.machine import SUCCESS, Machine


@pytest.mark.image_only
def test_an_unsampled_record_costs_less_than_sixty_instructions(capfd: pytest.CaptureFixture[str]) -> None:
    """`observe` itself fails if a thousand NOPs do not count as a thousand, and a repeated string instruction as one."""
    assert bench.bench("observe", as_json=True) == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["observe.record"]["target"] == 60
    assert 20 < rows["observe.record"]["value"] < 60
    assert 20 < rows["observe.record.median"]["value"] < 60
    assert rows["observe.record_without_a_run.most"]["value"] < 10, "a test of one byte, and the call"


@pytest.mark.image_only
def test_a_get_costs_less_than_on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux 6.1 with memcached 1.6.38 on the same emulation executes 24,700 instructions for one."""
    monkeypatch.setattr(bench, "GETS", 1000)
    (row,) = bench.request()
    assert 2_000 < row.value < 24_700


@pytest.mark.image_only
def test_what_is_to_be_skipped_does_not_count(tmp_path: Path) -> None:
    image = build.BUILD / "image/bench/bench_observe.elf"
    everything = [(0, (1 << 64) - 1)]
    with Machine(image, memory="256M", card=False, qemu_options=bench.counter_options(tmp_path / "counts", skip=everything)) as machine:
        assert machine.wait_exit(60) == SUCCESS
    counts = bench.read_counts(tmp_path / "counts")
    assert counts.cpus == (0,)
    assert counts.regions[0] == bench.Region(visits=100, instructions=0, least=0, median=0, most=0)
    with pytest.raises(Failure, match="the instruction counter is wrong"):
        bench.require_exact(counts)


def test_a_miss_of_the_target_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.BENCHMARKS, "missed", lambda: [bench.Row("a", "instructions", 60, 60)])
    monkeypatch.setitem(bench.BENCHMARKS, "met", lambda: [bench.Row("a", "instructions", 59.9, 60), bench.Row("b", "bytes", 1e9)])
    assert bench.bench("missed", as_json=False) == 1
    assert bench.bench("met", as_json=False) == 0


def test_each_qemu_gets_the_plugin_interface_it_speaks() -> None:
    assert [bench.plugin_api(version) for version in ("10.1.0", "10.2.2", "11.0.1", "11.1.3", "12.0.0")] == [5, 5, 5, 7, 7]
