# SPDX-License-Identifier: BSL-1.0
"""Many runs on the model machine: results in order, and their progress."""

import pytest

from tools import progress
from tools.bench import modelled


def test_results_are_in_the_order_of_the_settings_and_progress_is_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_INTERVAL_SECONDS", 0.0)
    assert modelled.run_each([3, 1, 2], lambda number: number * 10) == [30, 10, 20]
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["neap: 3 runs on the model machine", "neap: 1 of 3 runs, about 0 s left", "neap: 2 of 3 runs, about 0 s left"]


def test_a_failed_run_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        modelled.run_each([1, 0], lambda number: 1 / number)
