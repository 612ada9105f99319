# SPDX-License-Identifier: BSL-1.0
"""What is promised of costs, counted in instructions: as exact as a byte count, whatever else this machine does."""

from __future__ import annotations

import json

import pytest

from tools import bench


@pytest.mark.image_only
def test_an_unsampled_record_costs_less_than_sixty_instructions(capfd: pytest.CaptureFixture[str]) -> None:
    """`observe` itself fails if a thousand NOPs do not count as a thousand, and a repeated string instruction as one."""
    assert bench.bench("observe", as_json=True) == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["observe.record"]["target"] == 60
    assert 20 < rows["observe.record"]["value"] < 60
    assert 20 < rows["observe.record.median"]["value"] < 60
    assert rows["observe.record_without_a_run.most"]["value"] < 10, "a test of one byte, and the call"


def test_a_miss_of_the_target_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.BENCHMARKS, "missed", lambda: [bench.Row("a", "instructions", 60, 60)])
    monkeypatch.setitem(bench.BENCHMARKS, "met", lambda: [bench.Row("a", "instructions", 59.9, 60), bench.Row("b", "bytes", 1e9)])
    assert bench.bench("missed", as_json=False) == 1
    assert bench.bench("met", as_json=False) == 0


def test_each_qemu_gets_the_plugin_interface_it_speaks() -> None:
    assert [bench.plugin_api(version) for version in ("10.1.0", "10.2.2", "11.0.1", "11.1.3", "12.0.0")] == [5, 5, 5, 7, 7]
