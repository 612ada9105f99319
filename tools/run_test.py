# SPDX-License-Identifier: BSL-1.0
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import cli, emulated_cpu, machine, machine_words, outside, process, run
from tools.errors import Failure, UsageError


def test_an_application_has_its_ports_forwarded() -> None:
    assert (run.choose_forwards("memcached", []), run.choose_forwards("hello", [])) == ([(11211, 11211)], [])


def test_a_forward_of_the_same_guest_port_takes_the_defaults_place() -> None:
    assert run.choose_forwards("memcached", ["22122:11211", "8080:80"]) == [(22122, 11211), (8080, 80)]


@pytest.mark.parametrize("word", ["", "80", "80:", ":80", "0:80", "80:65536", "a:b", "80:80:80", "-1:80", "80:８０"])
def test_an_invalid_forward_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match="--forward takes HOST:GUEST"):
        run.choose_forwards("hello", [word])


def test_one_host_port_cannot_lead_to_two_places() -> None:
    with pytest.raises(UsageError, match="port 8080 is named twice"):
        run.choose_forwards("hello", ["8080:80", "8080:81"])


def test_a_port_in_use_is_named_with_a_way_out() -> None:
    with contextlib.closing(socket.create_server((machine.LOOPBACK, 0))) as server:
        port = server.getsockname()[1]
        with pytest.raises(Failure, match=rf"port {port} on 127.0.0.1 is in use") as caught:
            run.require_free_ports([(port, 11211)])
    assert "--forward" in caught.value.hint and ":11211" in caught.value.hint


MEMORIES = ["", "512", "M", "0M", "1.5G", "512K", "-1M", "512M,share=off"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        *((run.Options("hello", memory=memory), "--memory takes a size") for memory in MEMORIES),
        *((run.Options("hello", cores=cores), "--cores takes 1 to 256") for cores in (0, -1, 257)),
        (run.Options("helo"), r"no application 'helo' \(applications: hello, memcached\)"),
    ],
)
def test_an_invalid_size_number_of_cores_or_name_is_refused(options: run.Options, complaint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.build, "applications", lambda: ["hello", "memcached"])
    with pytest.raises(UsageError, match=complaint):
        run.run(options)


@pytest.mark.parametrize(
    "core,words,complaint",
    [
        (4, [], "from 0 to 3"),
        (-1, [], "from 0 to 3"),
        (2, ["cores=2"], "from 0 to 1"),
        (1, ["cores=0,2-3"], "cores=0,2-3 numbers them anew"),
        (0, ["ip=10.0.2.15", "cores=0-1"], "numbers them anew"),
    ],
)
def test_a_core_that_a_trace_would_not_find_is_refused(core: int, words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run.require_traceable(core, 4, words)
    run.require_traceable(3, 4, ["cores=4", "cores=9", "ip=10.0.2.15"])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[machine.Machine]:
    """The machines that `run` starts. None of them starts QEMU; each ends the run by a Failure."""
    machines: list[machine.Machine] = []

    @contextlib.contextmanager
    def built(*_: object) -> Iterator[outside.Application]:
        yield outside.Application("memcached", Path("memcached.elf"), ())

    def start(vm: machine.Machine) -> None:
        machines.append(vm)
        raise Failure("it would start here")

    monkeypatch.setattr(machine.Machine, "start", start)
    monkeypatch.setattr(run, "_built", built)
    monkeypatch.setattr(run.packages, "require", lambda *_groups: None)
    monkeypatch.setattr(run, "require_free_ports", lambda _forwards: None)
    monkeypatch.setattr(emulated_cpu, "require", lambda _text, _command: None)
    monkeypatch.setattr(run.qemu, "command", lambda: ("qemu",))
    return machines


def test_the_cpu_and_the_cards_clock_reach_the_machine(started: list[machine.Machine], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "memcached", "--cpu", "Haswell,-avx2", "--slow", "100"]) == 1
    (vm,) = started
    assert (vm.cpu, vm.card_options, vm.arguments) == ("Haswell,-avx2", ["--time-scale", "0.01"], ["slow=100"])
    line = "neap: --slow 100: the card's clock is 100 times slower than the CPU's; itr=16us lasts 1.6 ms. The log's header records this."
    assert capsys.readouterr().err.splitlines()[0] == line


def test_by_default_the_cpu_is_the_fullest_and_the_clock_is_right(
    started: list[machine.Machine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "memcached"]) == 1
    assert (started[0].cpu, started[0].card_options, started[0].arguments) == ("max", [], [])
    assert capsys.readouterr().err == "neap: error: it would start here\n"


def test_the_cards_model_reaches_the_soft_card(started: list[machine.Machine]) -> None:
    assert cli.main(["run", "memcached", "--card-model", "x550", "--slow", "10"]) == 1
    assert started[0].card_options == ["--time-scale", "0.1", "--model", "x550"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--vfio", "0000:03:00.0"], "a real card is the model that it is"),
        (["--model", "e5-2690", "--load", "etc"], "the model machine's card is the soft 82599"),
    ],
)
def test_a_model_that_the_card_cannot_have_is_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "memcached", "--card-model", "x540", *words]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--slow", "1"], "--slow takes 2 to 1000, not 1"),
        (["--slow", "1001"], "--slow takes 2 to 1000, not 1001"),
        (["--slow", "-5"], "--slow takes 2 to 1000, not -5"),
        (["--slow", "10", "--vfio", "0000:03:00.0"], "a real card has a clock of its own"),
        (["--slow", "10", "--model", "e5-2690", "--load", "etc"], "the model machine's card and CPU share one virtual clock"),
        (["--slow", "10", "--card", "virtio"], "QEMU's own card has no moderation"),
    ],
)
def test_a_slow_clock_that_the_card_cannot_have_is_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "memcached", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_virtio_card_is_qemus_own_and_needs_no_special_qemu(started: list[machine.Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run.qemu, "plain_command", lambda: ("plain-qemu",))
    monkeypatch.setattr(machine_words, "tap_has_queues", lambda name: name == "tap0")
    assert cli.main(["run", "memcached", "--card", "virtio"]) == 1
    assert cli.main(["run", "memcached", "--card", "virtio", "--tap", "tap0", "--cores", "4"]) == 1
    assert cli.main(["run", "memcached", "--card", "82599"]) == 1
    assert [(vm.card_kind, vm.net, vm.has_soft_card) for vm in started] == [
        ("virtio", "user", False), ("virtio", "tap:tap0", False), ("82599", "user", True),
    ]  # fmt: skip
    assert not started[1].forward
    assert [run.machine_qemu(options) for options in (
        run.Options("memcached", card="virtio"), run.Options("memcached", card="virtio", trace=0), run.Options("memcached"),
    )] == [("plain-qemu",), ("qemu",), ("qemu",)]  # fmt: skip
    assert [machine.Machine(None, card_kind=kind, qemu_options=options).qemu_words() for kind, options in (
        ("virtio", []), ("virtio", ["-plugin", "a.so"]), ("82599", []),
    )] == [("plain-qemu",), ("qemu",), ("qemu",)]  # fmt: skip


@pytest.mark.parametrize(("words", "has_rust"), [(["--card", "virtio"], False), (["--card", "virtio", "--load", "etc"], True), ([], True)])
def test_a_virtio_card_needs_no_rust(
    words: list[str], has_rust: bool, started: list[machine.Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    required: list[str] = []
    monkeypatch.setattr(run.packages, "require", lambda *groups: required.extend(groups))
    assert cli.main(["run", "memcached", *words]) == 1
    assert started and "build" in required and ("rust" in required, "card" in required) == (has_rust, has_rust)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--card", "virtio", "--vfio", "0000:03:00.0"], "--card and --vfio name two cards"),
        (["--card", "e1000"], "there is no 'e1000'"),
        (["--tap", "tap0"], "--tap is for a virtio card"),
        (["--card", "virtio", "--tap", "tap0", "--forward", "1:2"], "no port of 127.0.0.1 leads to a machine on a tap device"),
        (["--card", "virtio", "--model", "e5-2690", "--load", "etc"], "the model machine's card is the soft 82599"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "memcached", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_the_first_lane_to_fail_stops_the_others(tmp_path) -> None:
    def fail() -> None:
        time.sleep(0.2)
        raise Failure("no such thing")

    def work() -> None:
        process.run_logged(["sleep", "300"], tmp_path / "log", "working")
        process.run_logged(["sleep", "300"], tmp_path / "log", "working on")

    start = time.monotonic()
    with pytest.raises(Failure, match="no such thing"):
        run.in_parallel([fail, work])
    assert time.monotonic() - start < 60


def test_lanes_run_side_by_side() -> None:
    start = time.monotonic()
    run.in_parallel([lambda: time.sleep(0.5)] * 4)
    assert time.monotonic() - start < 1.5


def test_the_guests_end_is_the_launchers_status(capsys) -> None:
    ends = (machine.SUCCESS, machine.POWER_OFF, machine.FAILURE, machine.PANIC, machine.BAD_COMMAND_LINE, machine.RESET)
    assert [run.guest_status(end) for end in ends] == [0, 0, 17, 18, 19, 1]
    assert "the machine was reset" in capsys.readouterr().err


def test_the_applications_address_is_printed_once_it_listens(capsys) -> None:
    console = run.Console("memcached", [(22122, 11211)])
    console.show("memcached: listening on 10.0.2.15:11211")
    console.show("memcached: listening on 10.0.2.15:80")
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == "memcached: listening on 10.0.2.15:11211"
    assert captured.err == "neap: answers on 127.0.0.1:22122 (Ctrl-C ends it)\n"


def test_the_address_of_control_is_printed_too(capsys) -> None:
    run.Console("memcached", [(22122, 11211), (40000, 5002)]).show("control: listening on 10.0.2.15:5002, for 10.0.2.0/24")
    assert capsys.readouterr().err == "neap: control on 127.0.0.1:40000\n"


def test_a_console_without_a_reader_ends_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, text: str) -> None:
            raise BrokenPipeError

    stopped = threading.Event()
    console = run.Console("hello", [])
    console.stop_machine_with = stopped.set
    monkeypatch.setattr(run.sys, "stdout", Closed())
    console.show("a line")
    assert stopped.wait(10)


def test_text_quoted_on_the_console_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    console = run.Console("memcached", [(22122, 11211)])
    console.show("a key: \x1b[2J\x9b1m")
    console.show("memcached: listening on 10.0.2.15:" + "9" * 5000)
    assert capsys.readouterr().out.splitlines()[0] == "a key: \\x1b[2J\\x9b1m"
