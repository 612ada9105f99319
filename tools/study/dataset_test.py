# SPDX-License-Identifier: BSL-1.0
"""A study written in the published layout comes back as the same runs, and the studies' cleaners find its truth."""

from pathlib import Path

import pytest

from tools.conftest import neap
from tools.errors import Failure, UsageError
from tools.log import study_cleaners
from tools.study import dataset, schema, synthetic
from tools.study.view_source import Source

GRID = synthetic.Grid(itr_us=(10, 50), frequencies_ghz=(2.4,), rates=(200_000, 400_000), repeats=2, arms=("Neap",))
RUNS = 8


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict]]:
    folder = tmp_path_factory.mktemp("dataset")
    rows = synthetic.write(folder / "study", GRID, logs=RUNS)
    assert len(rows) == RUNS
    source = Source([str(folder / "study")])
    for layout in ("linux", "ebbrt"):
        assert dataset.write(source, layout, folder / layout)[0] == RUNS
    assert dataset.write(source, "log", folder / "log") == (RUNS, [])
    synthetic.write(folder / "two", GRID, logs=RUNS, packages=2)
    assert dataset.write(Source([str(folder / "two")]), "log", folder / "log of two packages") == (RUNS, [])
    return folder, rows


@pytest.mark.parametrize("layout", ["linux", "ebbrt", "log", "log of two packages"])
def test_a_study_comes_back_from_its_files(written: tuple[Path, list[dict]], layout: str) -> None:
    found = dataset.read(written[0] / layout).to_pylist()
    assert len(found) == RUNS and all(row["status"] == schema.OK for row in found), [row["failure"] for row in found]

    def key(row: dict, repeat: int) -> tuple:
        return (row["itr_us"], row["frequency_ghz"], row["rate_wanted"] if not layout.startswith("log") else None, repeat)

    if layout.startswith("log"):
        # The names have no rate, so equal settings are told apart by their numbers.
        assert len({(row["itr_us"], row["repeat"]) for row in found}) == RUNS
        assert sum(row["energy_j"] for row in found) == pytest.approx(sum(row["energy_j"] for row in written[1]), rel=1e-2)
        return
    truth = {key(row, row["repeat"]): row for row in written[1]}
    assert {key(row, row["repeat"]) for row in found} == set(truth)
    for row in found:
        true = truth[key(row, row["repeat"])]
        assert row["energy_j"] == pytest.approx(true["power_w"] * synthetic.LOG_SECONDS, rel=1e-2)
        assert row["requests"] == true["requests"] and row["energy_uj"] == pytest.approx(1e6 * row["energy_j"] / true["requests"])
        for name in ("mean_us", "p50_us", "p99_us"):
            assert row[name] == pytest.approx(true[name], abs=0.06)
        assert row["window_s"] == pytest.approx(synthetic.LOG_SECONDS, rel=1e-3) and row["rapl_w"] == 135
        assert row["interrupts"] == pytest.approx(2 * 3000, rel=0.01) and row["lost_frames"] is None and row["c6"] is None


def test_the_studies_cleaners_read_the_written_files(written: tuple[Path, list[dict]]) -> None:
    tails = {"linux": "10_0x1800_135_200000", "ebbrt": "10_0x1800_135_200000_c7"}
    true = next(row for row in written[1] if (row["itr_us"], row["rate_wanted"], row["repeat"]) == (10, 200_000, 1))
    for layout, tail in tails.items():
        found = study_cleaners.RESTATED[layout](written[0] / layout / "Neap", tail)
        assert found.joules == pytest.approx(true["power_w"] * synthetic.LOG_SECONDS, rel=1e-2)


def test_a_dataset_is_viewed_as_a_table_and_its_runs_have_logs(written: tuple[Path, list[dict]], tmp_path: Path) -> None:
    source = Source([str(written[0] / "linux")])
    assert source.count == RUNS and any("published data" in note for note in source.notes)
    places = source.log_places(0)
    assert len(places) == 16 and all(Path(place).is_file() for place in places)
    out = tmp_path / "runs.parquet"
    done = neap("view", str(written[0] / "linux"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    again = Source([str(out)])
    assert again.all("SELECT run, energy_j FROM runs ORDER BY run") == source.all("SELECT run, energy_j FROM runs ORDER BY run")
    assert set(schema.NAMES) <= set(again.columns)


def test_adaptive_moderation_and_the_governor_are_not_set(written: tuple[Path, list[dict]], tmp_path: Path) -> None:
    for path in (written[0] / "linux/Neap").glob("linux.mcd.*.0_*10_0x1800_135_200000"):
        (tmp_path / path.name.replace("10_0x1800_135", "1_0xffff_135")).write_bytes(path.read_bytes())
    (row,) = dataset.read(tmp_path).to_pylist()
    assert row["arm"] == "Linux dynamic" and row["itr_us"] is None and row["frequency_ghz"] is None and row["energy_j"] > 0


def test_a_damaged_run_is_kept_and_named(written: tuple[Path, list[dict]], tmp_path: Path) -> None:
    for path in (written[0] / "linux/Neap").glob("linux.mcd.*_10_0x1800_135_200000"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    next(tmp_path.glob("linux.mcd.dmesg.0_0_*")).write_text("1 2 3\n")
    rows = dataset.read(tmp_path).to_pylist()
    assert [row["status"] for row in rows] == ["failed", "ok"] and "3 columns" in rows[0]["failure"]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "study", GRID)
    source = Source([str(tmp_path / "study")])
    with pytest.raises(Failure, match="no run of this study has a log"):
        dataset.write(source, "linux", tmp_path / "out")
    with pytest.raises(UsageError, match="there is no layout"):
        dataset.write(source, "solaris", tmp_path / "out")
    with pytest.raises(Failure, match="is no file of the published studies"):
        dataset.files_of(tmp_path / "study" / schema.RUNS)
