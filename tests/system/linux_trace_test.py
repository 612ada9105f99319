# SPDX-License-Identifier: BSL-1.0
"""neap-trace on stock kernels of Debian 12 and 13, on the soft card: its log against ethtool's and /proc/interrupts' counts.

`./neap bench linux-log` compares more than a million packets in the same way.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from linux_guest import guest_image
from linux_guest.driver import BRING_UP, PATIENT_SECONDS, PING, TRAFFIC_PORT, complaints
from linux_guest.guest import LinuxGuest
from linux_guest.traced import CONTROL_PORT, Traced, address_of, fetched, traffic
from linux_guest.tracer import with_tracer

from tools import build, control_client
from tools.log import collect, decode, fetch
from tools.machine import LOOPBACK, SOFT_CARD

pytestmark = pytest.mark.names_the_82599

CORES = 4
# `ethtool -C` sets a new interval; neap-trace reads the settings once a second.
NEW_ITR_US = 50
NOTICE_SECONDS = 20
# Of each queue's interrupts, in a test.
MOVES = 12


@pytest.fixture(scope="module", params=["debian_12", "debian_13"])
def traced(request: pytest.FixtureRequest) -> Iterator[Traced]:
    """Linux with four cores on the soft card, with neap-trace in its initramfs, before its driver is loaded."""
    if not SOFT_CARD.is_file():
        pytest.fail("the soft card is not built: ./neap test system builds it", pytrace=False)
    image = guest_image.build(debian_13_kernel=request.param == "debian_13")
    with tempfile.TemporaryDirectory() as folder:
        larger = with_tracer(image, Path(folder) / "initramfs")
        with LinuxGuest(larger, cores=CORES, forward_ports=[CONTROL_PORT, TRAFFIC_PORT]) as guest:
            yield Traced(guest, image)


@pytest.fixture
def linux(traced: Traced) -> Iterator[Traced]:
    """The guest with an address, and no neap-trace. The guest's kernel must have logged no complaint at the end."""
    traced.guest.output_of(BRING_UP + PING, seconds=PATIENT_SECONDS)
    yield traced
    traced.end_tracer()
    assert complaints(traced.guest) == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--out /tmp/x", 1, "no interface here has the driver ixgbe"),
        ("--out /tmp/x --interface lo", 1, "lo has the driver no driver, and neap-trace knows only ixgbe"),
        ("--out /tmp/x --interface none0", 1, "there is no interface none0; `ip link` lists them"),
        ("--out /proc/x", 1, "/proc/x cannot be made"),
        ("--out /tmp/x --listen 5002", 2, "give either --out DIR or --listen PORT"),
        ("", 2, "give either --out DIR or --listen PORT"),
        ("--out /tmp/x --seconds 0", 2, "--seconds takes 1 to 1000000, not '0'"),
        ("--out /tmp/x --ring 100", 2, "--ring takes a power of two, not 100"),
        ("--listen nonsense --interface lo", 1, "knows only ixgbe"),
    ],
)
def test_a_machine_or_words_that_do_not_fit_are_refused_in_one_sentence(traced: Traced, words: str, status: int, said: str) -> None:
    traced.guest.output_of("modprobe -r ixgbe; rm -rf /tmp/x")
    result = traced.guest.run(f"neap-trace {words}")
    assert result.status == status and len(result.output.splitlines()) == 1
    assert result.output.startswith("neap-trace: ") and said in result.output


@pytest.mark.parametrize(
    ("before", "command", "after", "said"),
    [
        ("mount -t tmpfs none /sys/kernel/btf", "neap-trace --out /tmp/x", "umount /sys/kernel/btf", "this kernel has no BTF"),
        (
            "echo nobody:x:65534:65534::/:/bin/sh >/etc/passwd",
            "start-stop-daemon -S -c nobody -x /bin/neap-trace -- --listen 5002",
            "rm /etc/passwd",
            "loading BPF programs needs root",
        ),
        ("mkdir -p /tmp/ro; mount -t tmpfs -o ro none /tmp/ro", "neap-trace --out /tmp/ro", "umount /tmp/ro", "/tmp/ro cannot be written"),
    ],
)
def test_a_lack_of_btf_or_rights_is_named(linux: Traced, before: str, command: str, after: str, said: str) -> None:
    result = linux.guest.run(f"{before}; {command}; status=$?; {after}; exit $status")
    assert result.status == 1 and said in result.output and len(result.output.splitlines()) == 1, result.output


def test_a_port_that_is_taken_or_invalid_is_named(linux: Traced) -> None:
    assert "--listen takes [ADDRESS:]PORT" in linux.guest.run("neap-trace --listen nonsense").output
    linux.start_tracer()
    assert "cannot listen on" in linux.guest.run(f"neap-trace --listen 0.0.0.0:{CONTROL_PORT}").output


def test_frames_bytes_and_interrupts_equal_the_drivers_and_the_kernels_counts(linux: Traced) -> None:
    linux.start_tracer()
    compared = linux.compare(lambda: traffic(linux, seconds=1, flows=4))
    assert compared.frames > 500
    assert compared.log_counts == compared.driver_counts
    assert compared.log_interrupts == compared.kernel_interrupts and len(compared.log_interrupts) == CORES


def test_sums_are_exact_while_the_interrupts_move_between_the_cores(linux: Traced) -> None:
    linux.start_tracer()
    move = f"""
for round in $(seq {MOVES // CORES}); do for core in 3 2 1 0; do
  for irq in $(sed -n 's/^ *\\([0-9]*\\):.*eth0-TxRx.*/\\1/p' /proc/interrupts); do echo $core >/proc/irq/$irq/smp_affinity_list; done
  sleep 0.1
done; done >/tmp/moved 2>&1 &
"""

    def move_and_send() -> None:
        linux.guest.output_of(move)
        traffic(linux, seconds=2, flows=4)

    compared = linux.compare(move_and_send)
    assert compared.log_counts == compared.driver_counts
    # An interrupt that arrives at the new core while the old one still runs the handler is not counted by the kernel. The old core then
    # calls the handler again (handle_edge_irq, IRQS_PENDING). The log has each call.
    for queue, count in compared.kernel_interrupts.items():
        assert count <= compared.log_interrupts[queue] <= count + MOVES
    linux.guest.output_of("modprobe -r ixgbe; " + BRING_UP, seconds=PATIENT_SECONDS)  # its vectors are where the driver puts them again


def test_a_full_ring_is_counted_and_no_frame_is_lost(linux: Traced) -> None:
    linux.start_tracer("--ring 16 --drain-ms 1000")
    compared = linux.compare(lambda: traffic(linux, seconds=1, flows=2))
    assert compared.unwritten > 0
    assert compared.log_counts == compared.driver_counts
    kept, there = sum(compared.log_interrupts.values()), sum(compared.kernel_interrupts.values())
    assert kept < there <= kept + compared.unwritten


def test_collect_fetch_and_get_bring_the_same_bytes(linux: Traced, tmp_path: Path) -> None:
    linux.start_tracer("--idle")
    address = address_of(linux.guest)
    linux.ask("start")
    live = subprocess.Popen(
        [
            sys.executable,
            str(build.REPOSITORY / "neap"),
            "log",
            "collect",
            f"{LOOPBACK}:{address[1]}",
            "--live",
            "--out",
            str(tmp_path / "live"),
        ]
    )
    traffic(linux, seconds=1, flows=2)
    assert linux.ask("stop").startswith("ok run=")
    assert live.wait(timeout=60) == 0
    collect.collect(address, tmp_path / "collected", live=False, token=None, as_json=True, patience_seconds=10)
    fetch.fetch(address, tmp_path / "fetched", token=None, as_json=True)
    for core in range(CORES):
        got = fetched(address, core)
        assert got.startswith(b"NEAPLOG\n")
        for folder in ("live", "collected", "fetched"):
            assert (tmp_path / folder / f"core{core}.log").read_bytes() == got, f"{folder}, core {core}"
    assert len(list((tmp_path / "collected").glob("core*.log"))) == CORES


def test_the_tools_read_a_log_that_was_written_to_a_folder(linux: Traced, tmp_path: Path) -> None:
    # The kernel checks the programs for up to some seconds before the run begins.
    begun = "for i in $(seq 300); do grep -q records /tmp/recorded && break; sleep 0.1; done"
    linux.guest.output_of(
        f"rm -rf /tmp/logs; neap-trace --out /tmp/logs --seconds 3 --application pings >/tmp/recorded & {begun}; {PING}; wait", seconds=90
    )
    linux.copy("/tmp/logs", tmp_path)
    made = subprocess.run(
        [sys.executable, str(build.REPOSITORY / "neap"), "log", "summary", "--json", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert made.returncode == 0, made.stderr
    summary = json.loads(made.stdout)
    assert summary["total"]["rx_frames"] > 0 and summary["total"]["interrupts"] > 0
    run = decode.load([str(tmp_path)])
    assert run.about["application"] == "pings" and run.about["cores"] == CORES
    for core in run.cores:
        changes = {setting["changed"]: setting["value"] for setting in core.configured}
        assert changes["itr"] == "adaptive" and changes["queues"] == str(CORES), changes
        assert (core.records["idle_ticks"][1:].sum()) <= core.records["tsc"][-1] - core.records["tsc"][0]


def test_sleeps_are_recorded_one_by_one_if_asked_for(linux: Traced, tmp_path: Path) -> None:
    linux.start_tracer("--idle")
    linux.ask("start")
    traffic(linux, seconds=1, flows=1)
    linux.ask("stop")
    fetch.fetch(address_of(linux.guest), tmp_path, token=None, as_json=True)
    run = decode.load([str(tmp_path)])
    for core in run.cores:
        sleeps = core.idle
        assert len(sleeps) and (sleeps["tsc"] >= sleeps["tsc_asleep"]).all() and (sleeps["tsc_asleep"][1:] >= sleeps["tsc"][:-1]).all()
        asleep, counted = int((sleeps["tsc"] - sleeps["tsc_asleep"]).sum()), int(core.records["idle_ticks"][1:].sum())
        # A sleep that is on at the start or the stop is in the sum, but has no entry or a part of one.
        ends = int(core.records["tsc"][-1] - sleeps["tsc"][-1]) + int(sleeps["tsc_asleep"][0] - core.records["tsc"][0])
        assert asleep <= counted <= asleep + ends
        assert abs(len(sleeps) - int(core.records["idle_entries"][1:].sum())) <= 2


def test_a_changed_setting_is_a_policy_record_with_its_new_value(linux: Traced, tmp_path: Path) -> None:
    linux.start_tracer()
    linux.ask("start")
    linux.guest.output_of(f"ethtool -C eth0 rx-usecs {NEW_ITR_US}")
    asked = f"echo status | nc 127.0.0.1 {CONTROL_PORT} | grep -q 'generation=[1-9]'"
    linux.guest.output_of(
        f"for i in $(seq {10 * NOTICE_SECONDS}); do {asked} && exit 0; sleep 0.1; done; exit 1", seconds=2 * NOTICE_SECONDS
    )
    linux.ask("stop")
    linux.guest.output_of("ethtool -C eth0 rx-usecs 1")
    fetch.fetch(address_of(linux.guest), tmp_path, token=None, as_json=True)
    for core in decode.load([str(tmp_path)]).cores:
        changed = [setting for setting in core.settings if setting["changed"] == "itr"]
        assert [setting["value"] for setting in changed] == [f"{NEW_ITR_US}us"]
        assert (core.records["kind"] == decode.POLICY).sum() == len([each for each in core.settings if each["changed"] != "start"])


def test_bpftool_shows_the_programs_and_the_end_of_neap_trace_removes_them(linux: Traced) -> None:
    linux.start_tracer()
    linux.ask("start")
    listed = linux.guest.output_of("bpftool prog", seconds=60)
    assert set(re.findall(r"tracing  name (neap_\w+)", listed)) == {"neap_interrupt", "neap_poll", "neap_idle"}
    assert linux.hooks() == ["cpu_idle", "irq_handler_entry"]  # without a driver of cpuidle
    linux.ask("stop")
    assert linux.hooks() == []
    linux.end_tracer()
    assert "neap_" not in linux.guest.output_of("bpftool prog", seconds=60)


def test_polls_without_interrupts_are_hooked_only_while_they_happen(linux: Traced, tmp_path: Path) -> None:
    linux.start_tracer()
    linux.ask("start")
    linux.guest.output_of("echo 100 >/proc/sys/net/core/busy_read")
    linux.await_hooks(lambda hooks: "napi_poll" in hooks)
    traffic(linux, seconds=1, flows=2)
    linux.guest.output_of("echo 0 >/proc/sys/net/core/busy_read")
    linux.await_hooks(lambda hooks: "napi_poll" not in hooks)
    linux.ask("stop")
    fetch.fetch(address_of(linux.guest), tmp_path, token=None, as_json=True)
    polls = [core.records[core.records["kind"] == decode.POLL] for core in decode.load([str(tmp_path)]).cores]
    assert sum(len(each) for each in polls) > 0


def test_control_is_bounded_and_refuses_in_a_line(linux: Traced) -> None:
    linux.guest.output_of("echo correct-horse >/tmp/token")
    linux.start_tracer("--token-file /tmp/token")
    address = address_of(linux.guest)
    with control_client.Control(*address) as connection:
        assert connection.ask("status").startswith("error: a token is needed")
        assert connection.ask("token,wrong").startswith("error: wrong token")
    with control_client.Control(*address, "correct-horse") as connection:
        assert f"cores={CORES};" in connection.ask("status")
        assert connection.ask("start,5h").startswith("error: start takes a time")
        assert connection.ask("get,9").startswith("error: there is no core '9' (0 to 3)")
        assert connection.ask("stream,sometimes") == "error: stream takes after or live first"
        assert connection.ask("stream,after").startswith("error: there is no run")
        assert connection.ask("x" * 5000) == "error: line too long"
        assert connection.ask("mark,window") == "ok no run"
    clients = [socket.create_connection(address, timeout=20) for _ in range(40)]
    try:
        # A client that has said nothing gives up its place.
        with control_client.Control(*address, "correct-horse") as connection:
            assert connection.ask("status").startswith("ok ")
    finally:
        for client in clients:
            client.close()


def test_a_run_ends_after_its_time_and_a_second_run_empties_the_log(linux: Traced, tmp_path: Path) -> None:
    linux.start_tracer()
    first = linux.ask("start,1s")
    assert re.fullmatch(r"ok run=\d+ time_ns=1000000000", first)
    linux.guest.output_of(
        f"for i in $(seq 100); do echo status | nc 127.0.0.1 {CONTROL_PORT} | grep -q logging=off && exit 0; sleep 0.1; done; exit 1"
    )
    fetch.fetch(address_of(linux.guest), tmp_path / "1", token=None, as_json=True)
    linux.ask("start")
    linux.ask("mark,window")
    linux.ask("stop")
    fetch.fetch(address_of(linux.guest), tmp_path / "2", token=None, as_json=True)
    runs = [decode.load([str(tmp_path / name)]) for name in ("1", "2")]
    assert runs[1].about["run"] == runs[0].about["run"] + 1
    records = [run.cores[0].records["tsc"] for run in runs]
    assert records[1][0] > records[0][-1] and 0.9e9 < records[0][-1] - records[0][0] < 10e9
    assert [mark["what"] for mark in runs[1].cores[0].marks] == ["window"]
