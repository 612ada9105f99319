# SPDX-License-Identifier: BSL-1.0
"""An interrupted comparison goes on, and results of different programs are never mixed."""

import json
from pathlib import Path

import pytest

from tools.compare import plan, units
from tools.compare.figures import Measured
from tools.compare.folder import ResultFolder
from tools.errors import Failure, UsageError

PLAN = plan.Plan("title", "e5-2690", (1,), 1, 1, (plan.Arm("Linux static", "linux"),), (plan.Workload("get"),), (), None)
PROGRAMS = {"memcached": "abc", "plugin": "def"}
MEASURED = Measured("get", "Linux static", 1, 1, "request", 4.0, {"instructions": 1000.5}, {"driver": 10.0}, {"digest": "1-2"})


def test_a_unit_that_ended_is_not_run_again(tmp_path: Path):
    first = ResultFolder(tmp_path / "out", PLAN, PROGRAMS)
    log, loads = units.units(PLAN)
    assert not first.is_done(loads)
    first.keep(loads, units.Outcome([MEASURED]))
    first.keep(log, units.Outcome([], {"cpu": "x"}))
    again = ResultFolder(tmp_path / "out", PLAN, PROGRAMS)
    assert again.is_done(loads)
    assert again.measured(loads) == [MEASURED]
    assert again.machines() == {"Linux static": {"cpu": "x"}}


def test_another_plan_is_refused(tmp_path: Path):
    ResultFolder(tmp_path, PLAN, PROGRAMS)
    with pytest.raises(UsageError, match="has the results of another plan"):
        ResultFolder(tmp_path, PLAN.narrowed([], 2, None), PROGRAMS)


def test_another_program_is_named(tmp_path: Path):
    ResultFolder(tmp_path, PLAN, PROGRAMS)
    with pytest.raises(UsageError, match="begun with other versions of: plugin, QEMU"):
        ResultFolder(tmp_path, PLAN, {"memcached": "abc", "plugin": "changed", "QEMU": "1"})


def test_a_folder_with_other_files_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="has other files"):
        ResultFolder(tmp_path, PLAN, PROGRAMS)


def test_a_damaged_result_is_named(tmp_path: Path):
    results = ResultFolder(tmp_path, PLAN, PROGRAMS)
    unit = units.units(PLAN)[1]
    results.keep(unit, units.Outcome([MEASURED]))
    (place,) = (tmp_path / "units").iterdir()
    for text in ("{", "[]", json.dumps({"measured": [{"row": "get"}]})):
        place.write_text(text)
        with pytest.raises(Failure, match=place.name):
            results.measured(unit)
