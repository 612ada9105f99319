# SPDX-License-Identifier: BSL-1.0
"""The benchmark of the fit has all rows of table 6.1, and a biased fit misses its targets."""

import pytest

from tools.bench import fit
from tools.study import twin
from tools.study.published import TABLE_6_1


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "SEEDS", 1)
    monkeypatch.setattr(fit, "REPLICATES", 20)


def test_the_table_has_all_rows_and_no_target_is_missed() -> None:
    found = fit.rows()
    assert len(found) == len(fit.GRIDS) * len(TABLE_6_1) * len(fit.QUANTITIES) * 3
    assert [row.target for row in found if row.name == "scripts.Linux_600K.z.worst"] == [3.0]
    assert not any(row.missed for row in found)
    shown = fit.show(found)
    assert all(shown.count(of.name) == len(fit.GRIDS) for of in TABLE_6_1) and "targets missed: none" in shown


def test_a_biased_fit_misses_its_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    made = twin.rows

    def slower(*arguments, **options) -> list[dict]:
        return [{**row, "p99_us": row["p99_us"] * 1.05} for row in made(*arguments, **options)]

    monkeypatch.setattr(twin, "rows", slower)
    found = fit.rows()
    missed = [row.name for row in found if row.missed]
    assert "scripts.Linux_400K.z.worst" in missed and "scripts.EbbRT_600K.phi.worst" in missed
    assert "scripts.Linux_400K.z.worst" in fit.show(found).splitlines()[-1]
