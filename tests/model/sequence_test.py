# SPDX-License-Identifier: BSL-1.0
"""Several loads in one boot of the model machine: each is measured like a run of its own, and the whole repeats."""

import dataclasses
import filecmp
from pathlib import Path

import pytest

from tests.model.modelled import image
from tools.errors import Failure, UsageError
from tools.log import decode, load_results, summary
from tools.model import experiment, linux, profile, results
from tools.model.experiment import Experiment, Load, sequence_log, sequence_profile

MEMCACHED = image("apps/memcached", "memcached")
MODEL = "e5-2690"
CORES = 2
LOADS = (
    # With logs, as in a run of its own: the window then begins after the answer to `start`.
    Load("etc", rate=40_000, keys=500, window_ms=50, seed=3, log=True),
    Load("idle", mix="fixed", rate=0, connections=1000, keys=500, window_ms=50),
    Load("get_32_KiB", mix="fixed", rate=4000, connections=4, depth=1, keys=200, value_bytes=32 << 10, window_ms=50, seed=4, log=True),
)


def machine(**settings: object) -> Experiment:
    return dataclasses.replace(Experiment(MODEL, cores=CORES, profile=True), **settings)


def sequence(loads: list[Load], directory: Path, system: Path | experiment.System = MEMCACHED, **settings: object) -> list[results.Result]:
    directory.mkdir()
    wanted = machine(profile=isinstance(system, Path))
    found = experiment.run_sequence(wanted, loads, system, directory, **settings)  # type: ignore[arg-type]
    assert [result.name for result in found] == [load.name for load in loads]
    for load, result in zip(loads, found):
        assert result.world["failed"] == 0 and result.answered == result.world["offered"], load
        assert (result.answered == 0) == (load.rate == 0)
        assert result.window_ns == load.window_ms * 1e6
        assert result.world["connections"] == {"opened": load.connections, "refused": 0, "lost": 0, "ended": 0}
    return found


def alone(load: Load, directory: Path) -> results.Result:
    directory.mkdir()
    same = ("rate", "window_ms", "warm_up_ms", "connections", "depth", "protocol", "seed", "keys", "value_bytes")
    wanted = machine(load=load.mix, **{name: getattr(load, name) for name in same})
    return experiment.run(wanted, MEMCACHED, directory)


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_each_load_costs_what_it_costs_alone_and_a_sequence_repeats(tmp_path: Path) -> None:
    first = sequence(list(LOADS), tmp_path / "first")
    for number, (load, result) in enumerate(zip(LOADS, first)):
        own = alone(load, tmp_path / load.name)
        counted, _ = profile.total(tmp_path / "first" / sequence_profile(number))
        counted_alone, _ = profile.total(tmp_path / load.name / experiment.PROFILE)
        assert result.answered == own.answered
        if load.rate:
            assert counted / result.answered == pytest.approx(counted_alone / own.answered, rel=0.01), load
            assert result.row()["instructions_per_request"] == pytest.approx(own.row()["instructions_per_request"], rel=0.01), load
            assert result.frames_in_window["from_card"] == pytest.approx(own.frames_in_window["from_card"], rel=0.02)
            assert result.world["latency_ns"]["p50"] == pytest.approx(own.world["latency_ns"]["p50"], rel=0.05)
        else:
            assert sum(result.frames_in_window.values()) == 0 and result.row()["uj_per_request"] == 0
        assert result.watts == pytest.approx(own.watts, rel=0.02)
    sequence(list(LOADS), tmp_path / "again")
    same = files(tmp_path / "first")
    assert same == files(tmp_path / "again") and sequence_profile(2) in same
    assert filecmp.cmpfiles(tmp_path / "first", tmp_path / "again", same, shallow=False)[0] == same


def test_logs_answers_and_settings_belong_to_their_loads(tmp_path: Path) -> None:
    short = Load("a", rate=20_000, keys=100, window_ms=10, warm_up_ms=5, log=True)
    loads = [short, dataclasses.replace(short, name="b", log=False), dataclasses.replace(short, name="c", settings=["itr,200us"], seed=2)]
    plain, _, slow = sequence(loads, tmp_path / "run", ask=["status", "stats"])
    assert len(plain.answers) == 2 and plain.answers == slow.answers
    assert plain.answers[0].startswith("application=memcached; version=") and f"cores={CORES};" in plain.answers[0]
    folders = sorted(path.name for path in (tmp_path / "run" / experiment.LOG).iterdir())
    assert folders == [sequence_log(0, loads[0]).name, sequence_log(2, loads[2]).name]
    assert slow.world["latency_ns"]["p50"] > 2 * plain.world["latency_ns"]["p50"]
    # The third load's log is not that of all since the first start: its requests are those of its own window, and the ends of its phases.
    for number, load, result in ((0, loads[0], plain), (2, loads[2], slow)):
        folder = tmp_path / "run" / sequence_log(number, load)
        requests = requests_of(folder)
        assert result.answered <= requests <= 1.1 * result.answered + 20, (load.name, requests)
        run = decode.load([str(folder)])
        (window,) = load_results.read(folder / experiment.RESULT, run)
        core = run.cores[0]
        assert core.anchors["tsc"][0] < window.begin_tsc < window.end_tsc <= core.anchors["tsc"][-1], "the window is within its log"
        assert (window.requests, window.offered) == (result.answered, load.rate)


def requests_of(folder: Path) -> int:
    return summary.summarise(decode.load([str(folder)]))["total"]["requests"]


def test_histograms_of_several_loads_are_merged(tmp_path: Path) -> None:
    load = Load("one", mix="fixed", rate=50_000, keys=100, window_ms=10, warm_up_ms=2)
    one, two = sequence([load, dataclasses.replace(load, name="two", seed=9)], tmp_path / "run")
    for result in (one, two):
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)):
            assert results.quantile(result.histogram, share) == result.world["latency_ns"][name], name
    both = results.merged([one.histogram, two.histogram])
    assert sum(count for _, count in both) == one.answered + two.answered
    least, most = sorted([one.world["latency_ns"]["p99"], two.world["latency_ns"]["p99"]])
    assert least <= results.quantile(both, 0.99) <= most


def test_a_failure_names_its_load(tmp_path: Path) -> None:
    good = Load("good", rate=10_000, keys=50, window_ms=2, warm_up_ms=1)
    bad = dataclasses.replace(good, name="bad", settings=["itr,no"])
    with pytest.raises(Failure, match=r"in load 1 \(bad\): control at .* answered itr,no") as raised:
        experiment.run_sequence(machine(), [good, bad], MEMCACHED, tmp_path)
    assert any("load 1 (bad): control at" in line and "itr,no" in line for line in raised.value.details)


@pytest.mark.parametrize(
    ("loads", "said"),
    [
        ([], "at least one load"),
        ([Load("a", rate=-1)], "load a: --rate"),
        ([Load("a", connections=20_000)], "load a: --connections"),
        ([Load("a"), Load("b", window_ms=0)], "load b: --load-seconds"),
    ],
)
def test_a_load_that_cannot_be_is_refused(loads: list[Load], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        experiment.run_sequence(machine(), loads, MEMCACHED, tmp_path)


def test_linux_serves_loads_one_after_the_other(tmp_path: Path) -> None:
    """100-byte values first, so that a value that the second load did not store anew would have the wrong size."""
    small = Load("small", mix="fixed", rate=20_000, connections=1100, depth=1, keys=200, value_bytes=100, window_ms=20)
    large = Load("large", mix="fixed", rate=2000, keys=200, value_bytes=32 << 10, window_ms=20, options={"check-bytes": True})
    first, second = sequence([small, large], tmp_path / "run", experiment.System(*linux.image()))
    assert second.frames_in_window["bytes_from_card"] > second.answered * (32 << 10)
    assert first.row()["instructions_per_request"] > 5000
