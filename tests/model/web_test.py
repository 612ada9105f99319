# SPDX-License-Identifier: BSL-1.0
"""The web server on the model machine, with the scripts of the benchmark: each reply is right, and equal runs are equal."""

from pathlib import Path

import pytest

from tools import build, web_archive
from tools.model import experiment, linux, results
from tools.model.experiment import Experiment, System

WEB_SERVER = build.image("webserver")  # the debug image is not built by the tests
SHORT = {"rate": 20_000, "window_ms": 20, "warm_up_ms": 10, "protocol": "http"}


def run(script: str, wanted: Experiment, directory: Path) -> results.Result:
    result = offered(script, wanted, directory)
    assert result.world["failed"] == 0 and result.answered == result.world["offered"] > 0, result.world
    return result


def offered(script: str, wanted: Experiment, directory: Path) -> results.Result:
    directory.mkdir()
    module = directory / "module"
    module.write_bytes(web_archive.of(linux.WEB_SCRIPTS / f"{script}.js"))
    (directory / "run").mkdir()
    return experiment.run(wanted, System(WEB_SERVER, modules=(module,)), directory / "run")


def logs(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((directory / "run" / experiment.LOG).glob("core*.log"))]


@pytest.mark.parametrize("script", ["hello", "study", "json"])
def test_each_script_answers_as_its_preset_says(script: str, tmp_path: Path) -> None:
    # A request of JSON takes a hundred times the instructions of the others.
    settings = SHORT | {"rate": 1000} if script == "json" else SHORT
    result = run(script, Experiment("e5-2690", load=script, depth=4, **settings), tmp_path / "run")
    operation = "set" if script == "json" else "get"
    assert result.world["operations"] == {operation: {"done": result.answered}}


@pytest.mark.parametrize("cores", [1, 2])
def test_equal_seeds_give_equal_runs(cores: int, tmp_path: Path) -> None:
    wanted = Experiment("e5-2690", load="hello", cores=cores, seed=7, **SHORT)
    first, again = (run("hello", wanted, tmp_path / name) for name in ("first", "again"))
    assert first == again
    assert logs(tmp_path / "first") == logs(tmp_path / "again") and len(logs(tmp_path / "first")) == cores
    assert all(core.instructions > 0.2 * first.instructions for core in first.cores), "each core serves connections"


def test_another_page_than_the_presets_is_counted_as_wrong(tmp_path: Path) -> None:
    result = offered("study", Experiment("e5-2690", load="hello", **SHORT), tmp_path / "run")
    assert result.answered == 0 and result.world["failed"] > 100
    assert any(name.startswith("wrong_") for name in result.world["operations"]["get"]), result.world["operations"]
