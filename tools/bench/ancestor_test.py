# SPDX-License-Identifier: BSL-1.0
"""The table beside the measured counters has each figure with its ratio."""

from tools.bench import ancestor
from tools.bench.rows import Row


def found(factor: float) -> list[Row]:
    return [
        Row(
            f"{name}.{published.rate}.{figure}",
            "",
            getattr(published, figure) * factor,
            peer=getattr(published, figure),
            peer_is="measured",
        )
        for name, measured in ancestor.PUBLISHED.items()
        for published in measured
        for figure in ancestor.FIGURES
    ]


def test_the_table_has_each_ratio() -> None:
    rows = found(0.5)
    lines = ancestor.show(rows).splitlines()
    assert "modelled, not measured" in lines[0]
    assert sum("0.50" in line.split() for line in lines) == len(rows)


def test_figures_within_30_percent_are_counted() -> None:
    for factor, inside in ((0.69, 0), (0.71, 8), (1.29, 8), (1.31, 0)):
        assert ancestor.show(found(factor)).splitlines()[-1].startswith(f"cycles and power of Linux: {inside} of 8 figures")


def test_power_is_that_of_the_measured_machine() -> None:
    """200,000 requests/s of 306 uJ are 61 W."""
    assert round(ancestor.PUBLISHED["linux"][0].watts) == 61
    assert ancestor.FIGURES["watts"][1]({"watts": 30.0}) == 60.0
