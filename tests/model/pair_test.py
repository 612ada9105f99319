# SPDX-License-Identifier: BSL-1.0
"""NetPIPE between two modelled machines: equal runs are equal whatever the host does, and interrupt moderation delays both ends."""

from pathlib import Path

import pytest

from tests.model.modelled import image
from tools.bench.determinism import busy_host
from tools.errors import Failure, UsageError
from tools.model import experiment, layers, linux, pair, plugin
from tools.model.pair import Pairing

NETPIPE = image("apps/netpipe", "netpipe")
SHORT = ("repeats=20", "from=48", "to=96", "idle=c1")


def run(directory: Path, *words: str, **settings: object) -> pair.Result:
    directory.mkdir()
    return pair.run(Pairing("e5-2690", arguments=[*SHORT, *words], **settings), NETPIPE, directory)


def test_equal_settings_give_equal_runs(tmp_path: Path) -> None:
    first = run(tmp_path / "first", "itr=10us", network="loss=0.01", seed=3)
    with busy_host():
        again = run(tmp_path / "again", "itr=10us", network="loss=0.01", seed=3)
    assert first == again and [point.size for point in first.points] == [48, 72, 96]
    assert sum(one["losses"]["chance"] for one in first.world["machines"]) > 0, "frames were lost in these runs"


def test_moderation_at_both_ends_delays_messages_and_saves_power(tmp_path: Path) -> None:
    short, long = (run(tmp_path / f"itr{us}", f"itr={us}us") for us in (2, 100))
    for quick, slow in zip(short.points, long.points, strict=True):
        assert slow.latency_us > quick.latency_us + 40
        assert slow.latency_us == pytest.approx(50, rel=0.1), "a round trip takes one interval, because those of both ends overlap"
    for quick, slow in zip(short.points[1:], long.points[1:], strict=True):
        for role in pair.ADDRESSES:
            assert slow.spent[role].watts < quick.spent[role].watts
    for one in (short, long):
        frames = [machine["frames"] for machine in one.world["machines"]]
        # The first frames of a machine find a card that does not receive yet.
        lost = [machine["losses"]["unknown_address"] for machine in one.world["machines"]]
        assert frames[0]["to_card"] == frames[1]["from_card"] - lost[1] and frames[1]["to_card"] == frames[0]["from_card"] - lost[0]
        assert max(lost) < 5


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Pairing("unknown"), "--model takes .*e5-2690"),
        (Pairing("e5-2690", cores=0), "1 to 16 cores"),
        (Pairing("e5-2690", seed=1 << 64), "--seed"),
        (Pairing("e5-2690", arguments=["peer=10.0.0.9:1"]), "peer="),
        (Pairing("e5-2690", arguments=["mode=server"]), "mode="),
        (Pairing("e5-2690", sizes=[64, 100]), "power of two from 2 on, not 100"),
        (Pairing("e5-2690", sizes=[64], arguments=["to=64K"]), "to=64K: the sizes"),
        (Pairing("e5-2690", sizes=[64], repeats=0), "1 round trip or more"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(wrong: Pairing, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        wrong.check()


def test_both_systems_have_the_cost_of_a_round_trip_at_the_end_that_measures(tmp_path: Path) -> None:
    costs = {}
    for name, booted in (("neap", NETPIPE), ("linux", experiment.System(*linux.image()))):
        (tmp_path / name).mkdir()
        wanted = Pairing("e5-2690", arguments=["itr=16us", "pstate=29", "idle=c1"], sizes=(64,), repeats=40)
        (point,) = pair.run(wanted, booted, tmp_path / name).points
        round_trips = pair.TRIALS * point.repeats
        spent = point.spent[pair.TRANSMITTER]
        costs[name] = spent.instructions / round_trips
        assert point.size == 64 and point.repeats == 40
        assert spent.seconds * 1e6 / round_trips == pytest.approx(2 * point.latency_us, rel=0.1)
        assert 0.5 < spent.card_wakeups / round_trips < 4 and spent.package_j > 0
    assert 500 < costs["neap"] < costs["linux"] < 100_000


def test_words_of_netpipe_become_options_of_nptcp() -> None:
    words = Pairing("e5-2690", arguments=["from=32", "to=64K", "itr=8us"]).words(pair.TRANSMITTER, experiment.System(*linux.image()))
    assert {"neap.run=transmitter", "neap.peer=10.0.0.1", "neap.address=10.0.0.2/24", "neap.itr=8"} <= set(words)
    assert "neap.netpipe=-n,5000,-p,0,-l,32,-u,65536" in words
    with pytest.raises(UsageError, match="to= takes a number"):
        Pairing("e5-2690", arguments=["to=64G"]).words(pair.TRANSMITTER, experiment.System(*linux.image()))


def test_lines_and_snapshots_of_different_runs_are_refused() -> None:
    with pytest.raises(Failure, match="there are 0 snapshots of 1 lines"):
        pair.merge({role: ["netpipe: listening"] for role in pair.ADDRESSES}, {role: [] for role in pair.ADDRESSES}, {})


def test_a_measurement_that_fails_is_reported(tmp_path: Path) -> None:
    """The cable loses everything, so that the transmitter gives up."""
    with pytest.raises(Failure, match="NetPIPE's transmitter ended early: "):
        run(tmp_path / "lost", network="loss=0.999", seed=1)


def both_counts(directory: Path, system: experiment.System, words: list[str], **settings: object) -> tuple[list[dict], pair.Result]:
    """By size: the instructions of all machines in the snapshots of a run with a profile, and the same run's result."""
    directory.mkdir()
    lines: dict[str, list[str]] = {role: [] for role in pair.ADDRESSES}
    wanted = Pairing("e5-2690", arguments=words, profile=True, **settings)
    result = pair.run(wanted, system, directory, lambda role, line: lines[role].append(line))
    printed = {role: lines[role] for role in result.points[-1].spent}
    snapshots = {role: plugin.snapshots(directory / role) for role in pair.ADDRESSES}
    plain = pair.merge(printed, snapshots, result.world)
    assert plain.digest == result.digest
    return [{role: spent.instructions for role, spent in point.spent.items()} for point in plain.points], result


def test_a_profile_does_not_change_a_run_of_neap_and_has_its_layers(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", "itr=10us")
    profiled = run(tmp_path / "profiled", "itr=10us", profile=True)
    assert profiled.digest == plain.digest
    for without, point in zip(plain.points[1:], profiled.points[1:], strict=True):
        for role in pair.ADDRESSES:
            spent = point.spent[role]
            assert not without.spent[role].layers and sum(spent.layers.values()) == spent.instructions
            # Neap copies without repeated string instructions. The instruction that ends a line may be counted on either side of it.
            assert spent.instructions == pytest.approx(without.spent[role].instructions, abs=2)
            assert all(spent.layers[layer] > 0 for layer in layers.LAYERS)
            assert spent.layers[layers.OTHER] < 0.1 * spent.instructions, "the log is among the others"


def test_a_repeated_string_instruction_of_linux_counts_once(tmp_path: Path) -> None:
    """In copies of 64 KiB the snapshots count a repetition for every 8 bytes."""
    words = ["from=16K", "to=64K", "repeats=10", "itr=16us", "pstate=29", "idle=c1"]
    counted, result = both_counts(tmp_path / "linux", experiment.System(*linux.image()), words)
    for number, point in enumerate(result.points[1:], 1):
        spent = point.spent[pair.TRANSMITTER]
        assert set(point.spent) == {pair.TRANSMITTER} and spent.instructions <= counted[number][pair.TRANSMITTER]
        assert sum(spent.layers.values()) == spent.instructions
        assert all(spent.layers[layer] > 0 for layer in layers.LAYERS if layer != layers.OTHER)
        assert spent.layers[layers.OTHER] < 0.05 * spent.instructions
    assert result.points[-1].size == 1 << 16
    assert result.points[-1].spent[pair.TRANSMITTER].instructions < 0.9 * counted[-1][pair.TRANSMITTER]


def test_a_difference_of_runs_is_one_of_each_layer(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    wanted = Pairing("e5-2690", arguments=["itr=16us", "idle=c1"], sizes=(64,), repeats=20, profile=True)
    (point,) = pair.run(wanted, NETPIPE, tmp_path / "out").points
    for spent in point.spent.values():
        assert sum(spent.layers.values()) == spent.instructions
        assert spent.layers[layers.DRIVER] > 100 * pair.TRIALS * point.repeats
