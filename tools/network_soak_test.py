# SPDX-License-Identifier: BSL-1.0
"""The parts of `./neap soak network` that need no machine: plans from seeds, judgements of results, and the fuzzers' tally."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import build, fuzz_soak, network_soak, testing
from tools.errors import Failure, UsageError
from tools.fuzz_soak import Fuzzer
from tools.model.transfer import Idle, Outcome, Transfer

CALM = SimpleNamespace(world={"failed": 0, "latency_ns": {"mean": 20_000.0}, "frames": {"to_card": 5000}})
FLOODED = SimpleNamespace(world={"failed": 0, "latency_ns": {"mean": 22_000.0}, "frames": {"to_card": 1_080_000}})
STATISTICS = "memory.heap_used_bytes={}; net.half_open=128"


def texts(before: int, after: int) -> list[str]:
    return [STATISTICS.format(number) for number in (before, before, after, after)]


def test_a_seed_gives_one_round_and_rounds_have_all_impairments() -> None:
    assert network_soak.round_of(5) == network_soak.round_of(5) != network_soak.round_of(6)
    rounds = [network_soak.round_of(seed) for seed in range(100)]
    transfers = [step for one in rounds for step in one.steps if isinstance(step, Transfer)]
    for name in ("loss", "duplicate", "corrupt", "reorder", "delay_ms"):
        assert {getattr(step.network, name) > 0 for step in transfers} == {False, True}, name
    assert {step.out for step in transfers} == {False, True} and {one.setting.mtu for one in rounds} == {1500, 576}
    for one in rounds:
        assert isinstance(one.steps[-1], Idle), "a round ends with the look for leaks"
        names = [word.partition("=")[0] for word in one.setting.neap_words]
        assert len(set(names)) == len(names), "a word is there once"


def test_a_failed_transfer_is_a_finding_with_its_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def result(_setting: object, _server: object, steps: list, _out: Path) -> SimpleNamespace:
        good = {step.name: Outcome() for step in steps}
        return SimpleNamespace(outcomes={**good, steps[1].name: Outcome(failed="the sums of both ends differ")})

    monkeypatch.setattr(network_soak.transfer, "run", result)
    first, again = network_soak.play_round(7, SimpleNamespace())
    assert first.startswith("7.1: the sums of both ends differ; Transfer(") and "NEAP_SOAK_SEED=7" in again


def test_a_flood_may_slow_a_client_a_little() -> None:
    assert network_soak.flood_findings("polling", CALM, FLOODED, texts(1000, 2000)) == []


def test_a_flood_is_judged_with_a_sleeping_and_a_polling_core(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def one_client(_memcached: object, idle: str, _seconds: float, faults: list) -> tuple[SimpleNamespace, list[str]]:
        ran.append((idle, len(faults)))
        slow = {**FLOODED.world, "latency_ns": {"mean": 30_000.0}}
        flooded = SimpleNamespace(world=slow) if idle == "idle=poll" else FLOODED
        return (flooded if faults else CALM), texts(0, 0)

    monkeypatch.setattr(network_soak, "_one_client", one_client)
    (found,) = network_soak.flood(SimpleNamespace())
    assert found.startswith("polling: a client has 0.67 of its undisturbed rate")
    assert ran == [("idle=menu", 0), ("idle=menu", 1), ("idle=poll", 0), ("idle=poll", 1)]


@pytest.mark.parametrize(
    ("world", "memory", "said"),
    [
        ({"latency_ns": {"mean": 25_100.0}}, (0, 0), "0.80 of its undisturbed rate"),
        ({"failed": 3}, (0, 0), "3 requests failed"),
        ({"frames": {"to_card": 999_999}}, (0, 0), "only 999999 frames"),
        ({}, (0, 5 << 20), "the heap has grown by 5242880 bytes"),
    ],
)
def test_a_flood_that_harms_is_a_finding(world: dict, memory: tuple[int, int], said: str) -> None:
    (found,) = network_soak.flood_findings("polling", CALM, SimpleNamespace(world={**FLOODED.world, **world}), texts(*memory))
    assert said in found


def test_each_connection_has_to_open_and_to_answer() -> None:
    good = {"offered": 12_000, "answered": 12_000, "failed": 0, "connections": {"opened": 10_000, "refused": 0, "lost": 0}}
    assert network_soak.connection_findings([good], 10_000) == []
    assert network_soak.connection_findings([good, good], 20_000) == []
    for change, said in (
        ({"answered": 11_999}, "11999 were answered"),
        ({"connections": {"opened": 10_000, "refused": 2, "lost": 0}}, "'refused': 2"),
        ({"connections": {"opened": 9_999, "refused": 0, "lost": 0}}, "9999 connections were opened"),
    ):
        assert any(said in line for line in network_soak.connection_findings([{**good, **change}], 10_000)), said


LEFT = {**network_soak.LEFT, "net.connections_accepted": 100_027, "net.held_bytes": 2192, "memory.heap_used_bytes": 2_000_000}


def left(**changes: int) -> str:
    """Control's statistics. `changes`: with _ for the first point of a name."""
    return "; ".join(f"{name}={value}" for name, value in {**LEFT, **{key.replace("_", ".", 1): to for key, to in changes.items()}}.items())


def test_closed_connections_leave_nothing() -> None:
    assert network_soak.left_findings("churn", [left(), left(memory_heap_used_bytes=2_000_352)]) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"net_connections_open": 3}, "net.connections_open is 3 at the end, not 2"),
        ({"memcached_curr_connections": 2}, "memcached.curr_connections is 2 at the end, not 1"),
        ({"net_half_open": 1}, "net.half_open is 1 at the end, not 0"),
        ({"net_held_bytes": 4192}, "connections hold 2000 bytes more"),
        ({"memory_heap_used_bytes": 2_100_000}, "the heap has grown by 100000 bytes since the first load"),
    ],
)
def test_a_leak_of_closed_connections_is_a_finding(changes: dict[str, int], said: str) -> None:
    (found,) = network_soak.left_findings("churn", [left(), left(**changes)])
    assert said in found


@pytest.mark.parametrize(("part", "connections"), [(network_soak.churn, 100_000), (network_soak.crowd, 14_000)])
def test_statistics_are_taken_after_the_first_and_the_last_load(part: Callable, connections: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def run_sequence(_setting: object, loads: list, _image: object, _out: Path) -> list[SimpleNamespace]:
        seen.extend(loads)
        grown = {"end": left(memory_heap_used_bytes=3_000_000)}
        counts = {"offered": 1, "answered": 1, "failed": 0}
        opened = [{"opened": one.connections, "refused": 0, "lost": 0} for one in loads]
        answers = [[grown.get(one.name, left())] if one.settings else [] for one in loads]
        return [SimpleNamespace(world={**counts, "connections": a, "answers": b}) for a, b in zip(opened, answers, strict=True)]

    monkeypatch.setattr(network_soak.experiment, "run_sequence", run_sequence)
    (found,) = part(SimpleNamespace())
    assert "the heap has grown by 1000000 bytes" in found
    assert [at for at, one in enumerate(seen) if one.settings] == [1, len(seen) - 1]
    assert sum(one.connections for one in seen if not one.settings) == connections
    for one in seen:
        one.check()


def test_each_connection_is_used() -> None:
    load = network_soak._used_once("crowd", network_soak.CROWD_CONNECTIONS)
    assert load.rate * load.window_ms / 1000 > 1.1 * load.connections
    load.check()


def fuzzer(directory: Path, name: str) -> Fuzzer:
    path = directory / name
    path.write_text(f'#!/bin/sh\necho "{name}: from stream 1000 of seed $2" >&2\necho "{name}: 4000 streams, 70 bytes, in $1.0 s"\n')
    path.chmod(0o755)
    return Fuzzer(name, (str(path),))


@pytest.fixture
def fuzzers(tmp_path: Path) -> list[Fuzzer]:
    return [fuzzer(tmp_path, name) for name in ("fuzz_stack", "fuzz_segments")]


def test_executions_are_counted_until_there_are_enough(fuzzers: list[Fuzzer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_soak, "EXECUTIONS", 10_000)
    monkeypatch.setattr(build, "log_path", lambda name: tmp_path / f"{name}.log")
    file = tmp_path / "tally.json"
    assert network_soak.fuzz_slice(fuzzers, 1, network_soak.Tally(file)) == []
    tally = network_soak.Tally(file)
    assert [tally.of(one) for one in fuzzers] == [4000, 4000], "the file outlives the run"
    network_soak.fuzz_slice(fuzzers, 2, tally)
    assert tally.total(fuzzers) == 16_000, "one more slice was enough"
    network_soak.fuzz_slice(fuzzers, 3, tally)
    assert tally.total(fuzzers) == 16_000
    Path(fuzzers[0].argv[0]).write_text("another program")
    assert tally.of(fuzzers[0]) == 0
    assert len(json.loads(file.read_text())) == 2


def test_the_main_fuzzer_takes_the_time_that_the_others_leave(
    fuzzers: list[Fuzzer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "log_path", lambda name: tmp_path / f"{name}.log")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    tally = network_soak.Tally(tmp_path / "tally.json")
    main = fuzzer(tmp_path, network_soak.MAIN_FUZZER)
    assert network_soak.fuzz_slice([*fuzzers, main], 7, tally) == []
    assert tally.of(main) == 8000
    ran = re.findall(r"(fuzz_\w+): .* in (\d+)\.0 s; no finding, seed (\d+)", capsys.readouterr().out)
    assert sorted(ran) == [
        ("fuzz_segments", "20", "7"),
        ("fuzz_stack", "20", "7"),
        ("fuzz_tcp_connection", "260", "7"),
        ("fuzz_tcp_connection", "300", str(7 + network_soak.LANE_SEEDS)),
    ]


def test_a_finding_of_a_fuzzer_is_one_of_the_soak(fuzzers: list[Fuzzer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "log_path", lambda name: tmp_path / f"{name}.log")
    Path(fuzzers[0].argv[0]).write_text("#!/bin/sh\nexit 1\n")
    tally = network_soak.Tally(tmp_path / "tally.json")
    assert network_soak.fuzz_slice(fuzzers, 1, tally) == ["fuzz_stack has a finding"]
    assert tally.total(fuzzers) == 4000
    assert network_soak.fuzz_slice([], 1, tally) == ["there is no fuzzer of the network"]
    with pytest.raises(Failure, match="printed no number"):
        network_soak.executions("fuzz_other: 5 cases", "fuzz_stack")


def test_the_fuzzers_of_the_network_are_chosen_by_name() -> None:
    names = ("fuzz_stack", "fuzz_segments", "fuzz_shared_network", "fuzz_tcp_connection", "fuzz_memcached", "fuzz_control", "fuzz_session")
    assert [name for name in names if network_soak.FUZZERS.fullmatch(name)] == list(names[:4])


def test_soak_takes_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_soak, "PARTS", {"flood": lambda _: []})
    monkeypatch.setattr(network_soak.modelled, "prepare", lambda *_: None)
    monkeypatch.setattr(build, "build", lambda *_: None)
    monkeypatch.setattr(build, "image", lambda *_: Path("image"))
    monkeypatch.setattr(fuzz_soak, "find", lambda _wanted: [])
    monkeypatch.setattr(network_soak, "play_round", lambda *_: ["7.1: failed"])
    monkeypatch.setattr(network_soak, "fuzz_slice", lambda *_: [])
    assert testing.soak(["network"], 0.0001) == 1
    monkeypatch.setattr(network_soak, "play_round", lambda *_: [])
    assert testing.soak(["network"], 0.0001) == 0


def test_parts_of_the_soak_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(network_soak, "PARTS", {name: lambda _, name=name: ran.append(name) or [] for name in ("flood", "crowd")})
    monkeypatch.setattr(network_soak.modelled, "prepare", lambda *names: ran.extend(names))
    monkeypatch.setattr(build, "image", lambda *_: Path("image"))
    monkeypatch.setattr(build, "build", lambda *_: None)
    monkeypatch.setattr(fuzz_soak, "find", lambda _wanted: [])
    monkeypatch.setattr(network_soak, "play_round", lambda *_: ran.append("round") or [])
    monkeypatch.setattr(network_soak, "fuzz_slice", lambda *_: ran.append("fuzz") or [])
    for parts, expected in ((["crowd"], ["memcached", "crowd"]), (["rounds"], ["round"]), (["fuzz"], ["fuzz"])):
        ran.clear()
        assert testing.soak(["network"], 0.0001, parts=parts) == 0
        assert sorted(set(ran)) == sorted(expected), parts
    with pytest.raises(UsageError, match="--part takes rounds, flood, crowd, fuzz, not 'clouds'"):
        testing.soak(["network"], 1, parts=["clouds"])
    with pytest.raises(UsageError, match="--part belongs to soak network"):
        testing.soak(["card"], 1, parts=["fuzz"])


def test_a_part_that_fails_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> list[str]:
        raise Failure("the machine ended early", details=["its last line"])

    assert network_soak.report("crowd", fail) == ["the machine ended early"]
    assert "FINDING: the machine ended early" in capsys.readouterr().out
