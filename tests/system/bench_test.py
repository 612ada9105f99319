# SPDX-License-Identifier: BSL-1.0
"""Checks that costs, counted in instructions, meet their targets. The counts are exact and do not depend on the host's load."""

import json
from pathlib import Path

import pytest

from tools import bench, build, qemu_plugin
from tools.bench import exit_counter, instructions, kernel_peers, netpipe, request, request_cards, stream
from tools.bench import rows as rows_module
from tools.bench.rows import Row
from tools.errors import Failure, UsageError
from tools.machine import SUCCESS, Machine


@pytest.mark.image_only
def test_an_unsampled_record_costs_less_than_sixty_instructions(capfd: pytest.CaptureFixture[str]) -> None:
    """The bench first checks its own counting: a thousand NOPs are a thousand instructions, and a repeated string instruction is one."""
    assert bench.bench(["observe"], as_json=True) == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["observe.record"]["target"] == 60
    assert 20 < rows["observe.record"]["value"] < 60
    assert 20 < rows["observe.record.median"]["value"] < 60
    assert rows["observe.record_without_a_run.most"]["value"] < 10, "a test of one byte, and the call"


@pytest.mark.image_only
def test_the_kernels_steps_stay_within_their_targets(capfd: pytest.CaptureFixture[str]) -> None:
    """Each step's cost has a target, or is compared with an equivalent on Linux (`peer`). Lower bounds detect that the wrong region was
    measured."""
    bench.bench(["kernel"], as_json=True)
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    missed = {name: row for name, row in rows.items() if row["target"] is not None and row["value"] >= row["target"]}
    assert not missed, rows
    minimum = {"kernel.spawn_and_run": 30, "kernel.timer_add_cancel": 40, "kernel.interrupt_to_handler": 40, "kernel.ebb_call": 2}
    assert all(rows[name]["value"] > value for name, value in minimum.items()), rows
    assert rows["kernel.rcu_read"]["value"] == 0, "a read is a load"
    # If Linux's equivalent is a system call, its number of instructions includes at least the kernel's entry and exit.
    assert set(kernel_peers.PEERS) <= set(rows)
    for name in ("kernel.remote_spawn.sender", "kernel.remote_spawn.receiver", "kernel.timer_add_cancel", "kernel.interrupt_to_handler"):
        assert 200 < rows[name]["peer"] < 20_000, rows[name]
    for name in ("memory.malloc_free_64", "memory.malloc_free_4096"):
        assert 20 < rows[name]["peer"] < 2_000, rows[name]


def test_without_linux_the_kernels_figures_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network() -> dict[str, float]:
        raise Failure("no mirror answers")

    ours = [Row("kernel.timer_add_cancel", "instructions", 73, 80), Row("kernel.timer_add_cancel.most", "instructions", 74)]
    monkeypatch.setattr(kernel_peers, "measure", lambda: {"kernel.timer_add_cancel": 2191.0})
    assert rows_module.table(kernel_peers.beside(ours)).splitlines() == [
        "name                          value  target  peer  unit          the peer",
        "kernel.timer_add_cancel        73.0    < 80  2191  instructions  timerfd_settime, twice",
        "kernel.timer_add_cancel.most   74.0                instructions",
    ]
    monkeypatch.setattr(kernel_peers, "measure", no_network)
    alone = kernel_peers.beside(ours)
    assert [row.peer for row in alone] == [None, None] and not any(row.missed for row in alone)
    assert rows_module.table(alone).splitlines()[1].split()[:5] == ["kernel.timer_add_cancel", "73.0", "<", "80", "-"]


@pytest.mark.image_only
@pytest.mark.names_the_82599
def test_a_get_costs_less_than_on_linux() -> None:
    """Linux 6.1 with memcached 1.6 executes 18,215 instructions for a GET, in the same emulator under the same load."""
    selection = rows_module.Selection(["get.16", "get_32_KiB*"])
    rows = {row.name: row.value for row in request.rows(selection)}
    assert 200 < rows["request.get.16"] < 18_000
    assert all(rows[f"request.{name}"] > rows["request.get.16"] for name in ("get_32_KiB", "get_32_KiB.tso_off"))


@pytest.mark.image_only
@pytest.mark.names_the_82599
def test_a_get_on_virtio_is_measured_beside_the_82599(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a tap device each request is one frame, and a burst is one event. QEMU's user network acknowledges in frames of their own."""
    monkeypatch.setattr(request_cards, "BURSTS", 40)
    monkeypatch.setattr(request_cards, "WARM_UP_BURSTS", 20)
    tap, user = request.rows(rows_module.Selection([f"{request_cards.ON_TAP}*"]))
    assert 400 < tap.value < 4000 and 400 < tap.peer < 4000, tap
    assert "on a tap device (csum guest_csum tso4" in tap.unit and "on QEMU's user network (mrg_rxbuf" in user.unit
    assert user.value > tap.value and user.peer > tap.peer
    of_tap, of_user = request_cards.shown
    for table in (of_tap, of_user):
        driver = next(line for line in table.splitlines() if line.startswith("driver "))
        assert int(driver.split()[1]) > 30 and int(driver.split()[2]) > 30 and "receive_ready" in driver, table


@pytest.mark.image_only
@pytest.mark.names_the_82599
def test_the_profile_accounts_for_every_instruction() -> None:
    """The layers' sum is the row's value, and the requests of a burst share a wake-up. The completions of its replies need none."""
    load = next(load for load in request.LOADS if load.name == request.MAIN)
    cost = request.cost(load, build.image("memcached"), with_layers=True)
    assert cost.profile and sum(cost.profile.layers().values()) == cost.profile.total
    assert cost.profile.total / cost.answered == cost.instructions
    assert cost.requests_a_wakeup > 0.9 * load.burst


def test_a_pattern_without_a_row_is_refused() -> None:
    with pytest.raises(UsageError, match="no row is named nothing"):
        request.rows(rows_module.Selection(["nothing"]))


@pytest.mark.image_only
def test_skipped_addresses_do_not_count(tmp_path: Path) -> None:
    image = build.BUILD / "image/bench/bench_observe.elf"
    everything = [(0, (1 << 64) - 1)]
    with Machine(
        image, memory="256M", card=False, qemu_options=instructions.counter_options(tmp_path / "counts", skip=everything)
    ) as machine:
        assert machine.wait_exit(60) == SUCCESS
    counts = instructions.read_counts(tmp_path / "counts")
    assert counts.cpus == (0,)
    assert counts.regions[0] == instructions.Region(visits=100, instructions=0, min=0, median=0, max=0)
    with pytest.raises(Failure, match="the instruction counter is wrong"):
        instructions.require_exact(counts)


def test_the_exits_of_a_guest_that_has_known_ones_are_counted_exactly() -> None:
    exit_counter.require_exact()


def test_a_miss_of_the_target_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench.BENCHMARKS, "missed", bench.Benchmark(lambda: [Row("a", "instructions", 60, 60)]))
    monkeypatch.setitem(bench.BENCHMARKS, "met", bench.Benchmark(lambda: [Row("a", "instructions", 59.9, 60), Row("b", "bytes", 1e9)]))
    assert [bench.bench([name], as_json=False) for name in ("missed", "met")] == [1, 0]


def test_each_qemu_gets_the_plugin_interface_it_speaks() -> None:
    assert [qemu_plugin.plugin_api(version) for version in ("10.1.0", "10.2.2", "11.0.1", "11.1.3", "12.0.0")] == [5, 5, 5, 7, 7]


@pytest.mark.image_only
def test_a_log_collected_under_load_adds_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Runs the benchmark with a shorter load. The benchmark fails if an entry is neither collected nor counted as lost."""
    monkeypatch.setattr(stream, "LOAD_SECONDS", 1.0)
    monkeypatch.setattr(stream, "WARM_SECONDS", 0.2)
    rows = {row.name: row for row in stream.live(tmp_path / "live")}
    assert rows["stream.live.requests"].value > 0
    assert rows["stream.live.written"].value == rows["stream.live.collected"].value + rows["stream.live.lost"].value > 0
    assert not any(row.missed for row in rows.values())
    monkeypatch.setattr(stream, "of_cores", lambda _machine: [{"records": 10, "unwritten": 1}, {"records": 20, "unwritten": 0}])
    for lines, lost, missed in ((29, 2, False), (28, 2, True), (30, 2, True)):
        assert any(row.missed for row in stream.rows_of("a", None, stream.Collected(lines, lost, 1.0), 0.0, 0.0)) == missed


def test_both_sides_figures_stand_side_by_side() -> None:
    theirs = netpipe.results(["  0:       1 bytes    706 times -->      0.05 Mbps in     154.65 usec", "Sending output to np.out"])
    ours = netpipe.results(["  0:       1 bytes    706 times -->      0.04 Mbps in     160.00 usec"])
    rows = netpipe.rows_of("receiver", False, theirs, ours) + netpipe.rows_of("transmitter", False, [], ours)
    checked = netpipe.results(["  0:       5 bytes      5 times -->  Integrity check passed"])
    shown = netpipe.side_by_side([*rows, *netpipe.rows_of("receiver", True, checked, checked)]).splitlines()
    assert shown[2].split() == ["1", "154.65", "160.00", "0.05", "0.04"]
    assert shown[5].split() == ["1", "-", "160.00", "-", "0.04"]
    assert shown[6:] == [f"integrity, Neap as receiver, checked by {side}: 1 sizes passed, 0 failed" for side in ("nptcp", "neap")]
    assert any(row.missed for row in netpipe.rows_of("receiver", True, [], ours)), "a size without a passed check is a failed one"
    with pytest.raises(Failure, match="are not the same"):
        netpipe.rows_of("receiver", False, theirs, checked)


@pytest.mark.image_only
@pytest.mark.names_the_82599
def test_a_transfer_over_a_link_with_loss_arrives_whole_beside_linux(capfd: pytest.CaptureFixture[str]) -> None:
    """Both arms send and receive all bytes on the same link, the sums agree, and a rate is one that the link can have. Which one is faster
    is the benchmark's question."""
    bench.bench(["network"], as_json=True, rows=["loss_1"], megabytes=0.1, seeds=1)
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert list(rows) == [f"loss_1.{direction}.{what}" for direction in ("out", "in") for what in ("mbps", "ratio")]
    for name, row in rows.items():
        assert row["value"] is not None, f"{name}: {row['unit']}"
        if name.endswith(".mbps"):
            assert 0.01 < row["value"] < 96 and 0.01 < row["peer"] < 96
