# SPDX-License-Identifier: BSL-1.0
"""Tests of the figures over rounds."""

import pytest

from tools.compare import figures
from tools.compare.figures import Measured


def measured(row="get", arm="Neap", round_=1, cores=1, layers=None, **values):
    return Measured(row, arm, cores, round_, "request", 10.0, values, layers or {})


def test_an_interval_is_student_s():
    found = figures.estimate([10.0, 12.0, 14.0])
    # Standard deviation 2, of the mean 2 / sqrt(3); t of two degrees of freedom is 4.303.
    assert found.mean == 12.0
    assert found.half_width == pytest.approx(4.303 * 2 / 3**0.5)
    assert found.rounds == 3


def test_one_round_has_no_interval():
    found = figures.estimate([7.0])
    assert (found.low, found.mean, found.high) == (7.0, 7.0, 7.0)


def test_many_rounds_take_the_normal_distribution():
    found = figures.estimate([float(value % 2) for value in range(100)])
    assert found.half_width == pytest.approx(1.96 * (25 / 99) ** 0.5 / 10)


def test_rows_and_arms_are_grouped_and_averaged():
    found = figures.cells(
        [
            measured(instructions=100.0, layers={"driver": 40.0}),
            measured(round_=2, instructions=110.0, layers={"driver": 44.0, "other": 2.0}),
            measured(arm="Linux", instructions=1000.0),
            measured(cores=2, instructions=300.0),
        ]
    )
    assert list(found) == [("get", 1), ("get", 2)]
    assert found["get", 1]["Neap"].figures["instructions"].mean == 105.0
    assert found["get", 1]["Neap"].layers["other"].mean == 1.0  # absent is 0 for a layer
    assert figures.ratio(found["get", 1]["Linux"], found["get", 1]["Neap"], "instructions") == pytest.approx(1000 / 105)


def test_moved_lines_are_those_of_the_first_round():
    found = figures.cells([measured(instructions=1.0, moved_lines=4.0), measured(round_=2, instructions=1.0)])
    assert found["get", 1]["Neap"].figures["moved_lines"] == figures.Estimate(4.0, 4.0, 4.0, 1)


def test_a_figure_that_a_round_lacks_has_no_mean():
    found = figures.cells([measured(instructions=1.0, p99_us=5.0), measured(round_=2, instructions=1.0)])
    assert "p99_us" not in found["get", 1]["Neap"].figures
    assert figures.ratio(found["get", 1]["Neap"], found["get", 1]["Neap"], "p99_us") is None
