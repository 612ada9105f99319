# SPDX-License-Identifier: BSL-1.0
import contextlib
import errno
import io
import os
import socket
import sys
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import machine, machine_registry, machine_words, run_directory
from tools.conftest import alive
from tools.errors import Failure
from tools.firmware import UEFI, Start
from tools.machine import Machine, MachineError
from tools.process import wait_until

# A stand-in for QEMU, for tests without a guest. It never ends, and implements only the necessary part of the monitor's protocol.
FAKE_QEMU = """\
import json, socket, sys
path = next(word for word in sys.argv if word.startswith("unix:")).removeprefix("unix:").split(",")[0]
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen()
print("fake: started", flush=True)
while True:
    connection, _ = server.accept()
    for line in connection.makefile("rb"):
        connection.sendall(json.dumps({"return": {}}).encode() + b"\\n")
"""

# A stand-in for the soft card: its two sockets, "ready", and a control connection that echoes.
FAKE_CARD = """\
#!%s
import json, os, socket, sys
words = dict(zip(sys.argv, sys.argv[1:]))
if os.environ.get("FAKE_CARD_FAILS"):
    sys.exit("soft82599: cannot bind")
control = socket.socket(socket.AF_UNIX)
control.bind(words["--control"])
control.listen()
print("soft82599: ready", flush=True)
while True:
    connection, _ = control.accept()
    for line in connection.makefile("rb"):
        word = line.decode().strip()
        answer = {"echo": word, "pid": os.getpid(), "net": words["--net"], "mac": words.get("--mac")}
        text = "one\\ntwo\\n." if word == "state" else json.dumps({"error": "unknown"} if word == "bad" else answer)
        connection.sendall(text.encode() + b"\\n")
"""


@pytest.fixture
def fakes(tmp_path: Path) -> dict:
    (tmp_path / "qemu.py").write_text(FAKE_QEMU)
    card = tmp_path / "card"
    card.write_text(FAKE_CARD % sys.executable)
    card.chmod(0o755)
    image = tmp_path / "image.elf"
    image.write_text("")
    return {"image": image, "qemu_command": [sys.executable, str(tmp_path / "qemu.py")], "soft_card": card}


@pytest.fixture
def guest(guest_image: Path, qemu_command) -> Callable[..., Machine]:
    """A machine without a card, for the image of testdata/guest.S with these words."""
    return lambda *words, **options: Machine(guest_image, arguments=words, card=False, qemu_command=qemu_command, **options)


@pytest.mark.parametrize(
    ("word", "code"),
    [("s", machine.SUCCESS), ("f", machine.FAILURE), ("p", machine.PANIC), ("b", machine.BAD_COMMAND_LINE), ("r", machine.RESET)],
)
def test_the_guests_exit_code_is_given(guest, word: str, code: int) -> None:
    with guest("key=value", word) as vm:
        assert vm.wait_exit(20) == code


def test_the_command_line_arrives_though_the_images_path_has_spaces(guest) -> None:
    with guest("a=1", "b=2", "s") as vm:
        assert vm.wait_for_line(" s$", 20).split()[1:] == ["a=1", "b=2", "s"]


def test_a_power_off_is_no_reset(guest) -> None:
    with guest("halt") as vm:
        vm.wait_for_line("halt", 20)
        vm.qmp("quit")
        assert vm.wait_exit(20) == machine.POWER_OFF


def test_a_missing_line_is_an_error_with_the_console(guest) -> None:
    with guest("halt") as vm:
        vm.wait_for_line("halt", 20)
        with pytest.raises(MachineError, match="no line like /never/ within 0.2 s") as caught:
            vm.wait_for_line("never", 0.2)
        assert any("halt" in line for line in caught.value.details)
        with pytest.raises(MachineError, match="did not end within 0.2 s"):
            vm.wait_exit(0.2)


def test_a_machine_that_ends_early_is_not_waited_for(guest) -> None:
    with guest("p") as vm:
        start = time.monotonic()
        with pytest.raises(MachineError, match="ended before it printed /never/"):
            vm.wait_for_line("never", 60)
        assert time.monotonic() - start < 30


def test_an_error_of_qemu_is_shown(guest) -> None:
    with pytest.raises(MachineError, match="QEMU did not start") as caught, guest(qemu_options=["-no-such-option"]):
        pass
    assert any("no-such-option" in line for line in caught.value.details)


def test_a_missing_image_is_named(tmp_path: Path, qemu_command) -> None:
    with pytest.raises(Failure, match="there is no image"):
        Machine(tmp_path / "none.elf", card=False, qemu_command=qemu_command).start()


def test_many_machines_at_once_do_not_disturb_each_other(guest) -> None:
    def run(number: int) -> tuple[int, str]:
        with guest(f"number={number}", "s", forward=[(0, 80)]) as vm:
            return vm.wait_exit(60), vm.wait_for_line("number", 1).split()[1]

    with ThreadPoolExecutor(4) as together:
        assert list(together.map(run, range(4))) == [(machine.SUCCESS, f"number={number}") for number in range(4)]


def test_the_run_directory_is_removed_with_the_run(guest) -> None:
    with guest("halt") as vm:
        directory = vm.directory
        assert directory.is_dir() and directory.stat().st_mode & 0o077 == 0
    assert not directory.exists() and not vm.running


def test_a_killed_launcher_takes_qemu_and_card_along_and_the_next_run_cleans_up(fakes: dict, python) -> None:
    program = """
import sys, time
from pathlib import Path
from tools.machine import Machine
vm = Machine(Path(sys.argv[1]), qemu_command=[sys.executable, sys.argv[2]], soft_card=Path(sys.argv[3]))
vm.start()
print(vm._qemu.pid, vm._card_process.pid, vm.directory)
time.sleep(300)
"""
    launcher = python(program, str(fakes["image"]), fakes["qemu_command"][1], str(fakes["soft_card"]))
    line = launcher.stdout.readline()
    assert line, launcher.stderr.read()
    qemu_pid, card_pid, directory = line.split()
    assert alive(int(qemu_pid)) and alive(int(card_pid))
    launcher.kill()
    launcher.wait()
    assert wait_until(lambda: not alive(int(qemu_pid)) and not alive(int(card_pid)), 60)
    assert Path(directory).is_dir()
    with Machine(**fakes) as vm:
        assert vm.running and not Path(directory).exists()


def test_a_described_run_is_found_while_it_lives(fakes: dict) -> None:
    def found() -> list[machine_registry.Running]:
        return [one for one in machine_registry.machines(run_directory.run_base(), run_directory.RUN_PREFIX) if one.application == "a-test"]

    with Machine(**fakes, forward=[(machine.free_port(), 80), (machine.free_port(), 5002)]) as vm:
        assert found() == []
        vm.describe("a-test", 5002)
        assert found() == [machine_registry.Running("a-test", os.getpid(), {80: vm.port(80), 5002: vm.port(5002)}, vm.port(5002))]
        vm.describe("a-test", None)
        assert found()[0].control_port is None
    assert found() == []


def test_the_run_directory_of_a_living_run_is_left_alone(fakes: dict) -> None:
    with Machine(**fakes) as first, Machine(**fakes):
        assert (first.directory / "lock").exists()


def test_commands_reach_the_card_through_its_control_socket(fakes: dict) -> None:
    with Machine(**fakes, mac="02:00:00:00:00:01") as vm:
        answer = vm.card_command("counters")
        assert (answer["echo"], answer["net"], answer["mac"]) == ("counters", f"listen:{vm.directory / 'net'}", "02:00:00:00:00:01")
        assert vm.card_command("state") == "one\ntwo"
        with pytest.raises(Failure, match="the soft card refused 'bad': unknown"):
            vm.card_command("bad")
        vm.kill_card()
        assert not alive(answer["pid"])
        with pytest.raises(Failure, match="did not answer"):
            vm.card_command("counters")


def test_a_card_that_does_not_start_is_an_error_and_leaves_nothing_running(fakes: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CARD_FAILS", "1")
    vm = Machine(**fakes)
    with pytest.raises(MachineError, match="the soft card did not start") as caught:
        vm.start()
    assert any("cannot bind" in line for line in caught.value.details), caught.value.details
    assert not vm.directory.exists()


def test_an_option_that_qemu_refuses_is_an_error_with_qemus_own_words(guest) -> None:
    with pytest.raises(MachineError, match="QEMU did not start") as caught, guest("halt", cpu="Haswell,enforce=on"):
        pass
    assert any(line.startswith("qemu    | ") and "TCG doesn't support requested features" in line for line in caught.value.details)


def test_a_missing_card_is_named(fakes: dict, tmp_path: Path) -> None:
    with pytest.raises(Failure, match="there is no soft card"):
        Machine(**{**fakes, "soft_card": tmp_path / "none"}).start()


def test_a_port_in_use_is_detected() -> None:
    with contextlib.closing(socket.create_server((machine.LOOPBACK, 0))) as server:
        assert not machine.port_is_free(server.getsockname()[1])
    assert machine.port_is_free(machine.free_port())


def test_a_long_runtime_directory_is_not_used_for_sockets(fakes: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long-" * 20)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with Machine(**fakes) as vm:
        assert long not in vm.directory.parents
        assert len(os.fsencode(vm.directory)) + len("/control") < 108


@pytest.mark.parametrize(
    ("options", "small"),
    [
        ({}, True),
        ({"cores": 4, "restarts": True, "accelerator": "kvm"}, True),
        ({"qemu_options": ["-plugin", "x.so"]}, True),
        ({"qemu_options": ["-device", "VGA"]}, False),
        ({"initrd": Path("initrd")}, False),
        ({"start_from": Start(firmware=UEFI)}, False),
        ({"machine_type": "pc"}, False),
        ({"image": None}, False),
    ],
)
def test_an_image_that_needs_no_more_starts_by_the_smallest_firmware(
    guest_image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict, small: bool
) -> None:
    monkeypatch.setattr(machine.qemu, "small_firmware", lambda argv: ("-bios", "small.rom"))
    monkeypatch.setattr(Start, "qemu_arguments", lambda self, directory: [])
    one = Machine(**{"image": guest_image, "card": False, **options})
    one.directory = tmp_path
    assert ("small.rom" in machine_words.qemu_arguments(one, tmp_path / "qmp")) == small


def test_an_accelerator_changes_the_cpu_and_nothing_else(guest_image: Path, tmp_path: Path) -> None:
    words = {}
    for accelerator in ("tcg", "kvm"):
        one = Machine(guest_image, accelerator=accelerator, card=False)
        one.directory = tmp_path / accelerator
        one.directory.mkdir()
        words[accelerator] = " ".join(machine_words.qemu_arguments(one, tmp_path / "qmp")).replace(str(one.directory), "")
    kvm = "-accel kvm -cpu host -overcommit cpu-pm=on"
    assert kvm in words["kvm"]
    assert words["kvm"].replace(kvm, "-accel tcg,thread=multi -cpu max") == words["tcg"]


def test_modules_are_named_in_order_without_spaces_and_commas(tmp_path: Path) -> None:
    files = [tmp_path / "a script.js", tmp_path / "more, of it.js"]
    one = Machine(tmp_path / "image.elf", modules=files)
    one.directory = tmp_path / "run"
    one.directory.mkdir()
    words = machine_words.qemu_arguments(one, tmp_path / "qmp")
    places = words[words.index("-initrd") + 1].split(",")
    assert [Path(place).name for place in places] == ["0-a-script.js", "1-more--of-it.js"]
    assert [Path(place).readlink() for place in places] == files


def test_a_frozen_machine_stops_and_goes_on(guest: Callable[..., Machine]) -> None:
    def state() -> str:
        return Path(f"/proc/{vm._qemu.pid}/stat").read_text().rpartition(")")[2].split()[0]

    with guest("halt") as vm:
        vm.wait_for_line("halt", 30)
        with vm.frozen():
            assert state() == "T"
        assert wait_until(lambda: state() != "T", 10)
        with vm.frozen():
            vm._qemu.kill()
        assert wait_until(lambda: not vm.running, 10), "a machine that ends while it is frozen is no error"


def words_of(tmp_path: Path, **options) -> str:
    one = Machine(tmp_path / "image.elf", card_kind="virtio", qemu_command=["qemu"], **options)
    one.directory = tmp_path / "run"
    one.directory.mkdir(exist_ok=True)
    (one.directory / "image.elf").unlink(missing_ok=True)
    return " ".join(machine_words.qemu_arguments(one, tmp_path / "qmp"))


def test_a_virtio_card_is_qemus_own_device(tmp_path: Path) -> None:
    words = words_of(tmp_path, cores=4, forward=[(8000, 80)], mac="52:54:00:00:00:01")
    assert "-device virtio-net-pci,id=nic,disable-legacy=on,vectors=4,netdev=user,romfile=,mac=52:54:00:00:00:01" in words
    assert "-netdev user,id=user,restrict=on,hostfwd=tcp:127.0.0.1:8000-:80" in words
    assert "vfio-user" not in words and "hubport" not in words
    assert "netdev" not in words_of(tmp_path, net="none")
    (tmp_path / "disk").touch()
    assert "romfile" not in words_of(tmp_path, start_from=Start(disk=tmp_path / "disk")), (
        "firmware that boots from a disk has the card's ROM"
    )


def test_a_virtio_card_on_a_tap_device_has_a_queue_for_each_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_words, "tap_has_queues", lambda name: name == "tap-of-many")
    words = words_of(tmp_path, cores=4, net="tap:tap-of-many", card_options=["rss=on"])
    assert "-netdev tap,id=user,ifname=tap-of-many,script=no,downscript=no,queues=4" in words
    assert "vectors=10,mq=on,netdev=user,romfile=,rss=on" in words
    words = words_of(tmp_path, cores=4, net="tap:tap0")
    assert "downscript=no -device" in words and "mq=on" not in words


def test_a_virtio_card_refuses_the_soft_cards_networks(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="has no network like loopback"):
        words_of(tmp_path, net="loopback")
    with pytest.raises(Failure, match="no tap device no-such-tap") as caught:
        words_of(tmp_path, net="tap:no-such-tap")
    assert "ip tuntap add" in str(caught.value.hint)


def test_a_virtio_card_starts_no_soft_card(fakes: dict) -> None:
    with Machine(**{**fakes, "soft_card": Path("/nowhere"), "card_kind": "virtio"}) as vm:
        assert not vm.has_soft_card


def test_a_full_disk_ends_the_consoles_log_and_not_the_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    class Full(io.BytesIO):
        def write(self, _data) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    shown: list[str] = []
    monkeypatch.setattr(machine, "open", lambda *_words, **_options: Full(), raising=False)
    vm = Machine(None, on_line=shown.append)
    vm.directory, vm._qemu = tmp_path, types.SimpleNamespace(stdout=[b"one\n", b"two\n"])
    vm._read_console()
    assert shown == vm.lines == ["one", "two"]
    assert capsys.readouterr().err == f"neap: {tmp_path}/console.log ends here: No space left on device\n"
