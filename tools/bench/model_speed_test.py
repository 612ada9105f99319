# SPDX-License-Identifier: BSL-1.0
"""The benchmark of the model's speed divides the right times, and refuses to compare different work."""

import pytest

from tools.bench.model_speed import Measured, rows_of
from tools.errors import Failure

IDLE = [Measured(0.0, passed_s, "") for passed_s in (0.2, 0.4, 9.0)]


def measured(cpu_s: float, instructions: int = 0, said: str = "sum 5") -> Measured:
    return Measured(cpu_s, 2 * cpu_s, said, instructions)


def test_the_slowdown_is_a_ratio_of_medians() -> None:
    plain = [measured(1.0), measured(2.0), measured(50.0)]
    with_model = [measured(3.0, 9_000_000), measured(5.0, 9_000_000), measured(70.0, 9_000_000)]
    values = {row.name: row.value for row in rows_of(4, plain, with_model, IDLE)}
    assert values["4_cores.slowdown"] == pytest.approx(2.5)
    assert values["4_cores.idle_minute"] == pytest.approx(0.4)
    assert values["4_cores.model"] == pytest.approx(9 / 5) and values["4_cores.plain"] == pytest.approx(9 / 2)


def test_a_slow_model_misses_its_target() -> None:
    found = rows_of(1, [measured(1.0)], [measured(3.5, 1000)], IDLE)
    assert [row.name for row in found if row.missed] == ["1_core.slowdown"]


@pytest.mark.parametrize("other", [measured(1.0, 999), measured(1.0, 1000, said="sum 6")])
def test_different_work_is_no_comparison(other: Measured) -> None:
    with pytest.raises(Failure, match="different results"):
        rows_of(1, [measured(1.0)], [measured(1.0, 1000), other], IDLE)
