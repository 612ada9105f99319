# SPDX-License-Identifier: BSL-1.0
"""Another QEMU than the pinned one, a missing symbol, a changed offset: one sentence, and no instruction of the guest runs.

The other QEMUs are copies of the pinned one with some bytes changed: QEMU's version, or the name of a symbol. A changed offset is one that
the plugin itself misplaces (its option `misplace`), because the offsets are in QEMU's code.
"""

import subprocess
from pathlib import Path

import pytest

from tests.model.modelled import RUN_SECONDS, image
from tools import qemu
from tools.errors import Failure
from tools.machine import SUCCESS
from tools.model import cpu_model, plugin
from tools.process import output_of

REFUSED = 2
IMAGE = image("tests/target", "boots")
MACHINE = (
    "-nodefaults -no-user-config -display none -no-reboot -machine q35 -m 256M -accel tcg,thread=single -serial stdio "
    "-device isa-debug-exit,iobase=0xf4,iosize=0x04"
)
CLOCK_WORDS = 4  # plugin.options begins with -icount and -rtc


def offsets() -> list[str]:
    """The names of all offsets, from the plugin's own table."""
    text = (plugin.SOURCES / "qemu_layout.hpp").read_text()
    return [line.split('"')[1] for line in text.splitlines() if "Named{" in line]


def start(directory: Path, command: tuple[str, ...], *words: str, clock: bool = True) -> subprocess.CompletedProcess:
    """Starts QEMU as the launcher does, on an image that would print and end."""
    cpu = cpu_model.load("e5-2690")
    options = plugin.options(cpu, directory)
    options[-1] = ",".join([options[-1], *words])
    argv = [*command, *MACHINE.split(), "-cpu", cpu.qemu_cpu(), *(options if clock else options[CLOCK_WORDS:])]
    argv += ["-kernel", str(IMAGE), "-append", "expected_cores=1"]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)


def changed_copy(directory: Path, old: bytes, new: bytes, start_at: int = 0) -> tuple[str, ...]:
    """The pinned QEMU with `old` replaced once, as a command."""
    assert len(old) == len(new)
    command = list(qemu.command())
    at = max(i for i, word in enumerate(command) if word == program_file())
    program = bytearray(Path(command[at]).read_bytes())
    place = program.find(old, start_at)
    assert place >= 0
    program[place : place + len(new)] = new
    command[at] = str(directory / qemu.PROGRAM)
    Path(command[at]).write_bytes(program)
    Path(command[at]).chmod(0o755)
    return tuple(command)


def program_file() -> str:
    """The path of the pinned QEMU's program. In a private QEMU's command, a dynamic linker stands before it."""
    return [word for word in qemu.command() if word.endswith(qemu.PROGRAM)][-1]


def check_refusal(done: subprocess.CompletedProcess, directory: Path, said: str) -> None:
    assert done.returncode == REFUSED, (done.returncode, done.stdout, done.stderr)
    sentences = [line for line in done.stderr.splitlines() if line.startswith("neap-machine: ")]
    assert len(sentences) == 1 and said in sentences[0], done.stderr
    assert done.stdout == "", "the guest has printed"
    assert plugin.snapshots(directory) == []


def test_the_pinned_qemu_is_accepted(tmp_path: Path) -> None:
    """The other tests would pass if everything was refused."""
    done = start(tmp_path, qemu.command())
    assert "neap-machine" not in done.stderr and done.returncode == 2 * SUCCESS + 1, done.stderr
    assert plugin.snapshots(tmp_path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    # qmp_query_version stores the last of 11.1.3's numbers with movq $3, 16(%rax).
    symbol = next(line for line in output_of(["nm", "-D", program_file()]).splitlines() if line.endswith(" T qmp_query_version"))
    micro = bytes.fromhex("48c74010")
    command = changed_copy(tmp_path, micro + (3).to_bytes(4, "little"), micro + (4).to_bytes(4, "little"), int(symbol.split()[0], 16))
    check_refusal(start(tmp_path, command), tmp_path, "this QEMU is not the one that the model knows: expected is 11.1.3")


@pytest.mark.parametrize("symbol", ["icount_handle_interrupt", "helper_info_wrmsr", "msix_notify"])
def test_a_missing_symbol_is_refused(tmp_path: Path, symbol: str) -> None:
    name = symbol.encode()
    command = changed_copy(tmp_path, b"\0" + name + b"\0", b"\0" + name[:-1] + b"X\0")
    check_refusal(start(tmp_path, command), tmp_path, f"QEMU has no symbol {symbol}")


@pytest.mark.parametrize("offset", offsets())
def test_a_changed_offset_is_refused(tmp_path: Path, offset: str) -> None:
    check_refusal(start(tmp_path, qemu.command(), f"misplace={offset}"), tmp_path, "QEMU")


def test_a_machine_without_icount_is_refused(tmp_path: Path) -> None:
    check_refusal(start(tmp_path, qemu.command(), clock=False), tmp_path, "-icount shift=0,sleep=off is needed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=/nowhere"], "cannot read the model file '/nowhere'"),
        (["quantum_ns=1"], "quantum_ns takes 100 to 1000000"),
        (["instructions_max=0"], "instructions_max takes a number above 0"),
        (["colour=red"], "unknown option colour"),
        (["misplace=nothing"], "there is no offset nothing"),
        (["lines=on", "profile=/tmp/%/profile.txt"], "profile needs a % in the file's name with lines=on"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path: Path, words: list[str], said: str) -> None:
    check_refusal(start(tmp_path, qemu.command(), *words), tmp_path, said)


def test_the_launcher_refuses_another_qemu_before_it_starts_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / qemu.PROGRAM
    other.write_text("#!/bin/sh\necho 'QEMU emulator version 10.0.11'\n")
    other.chmod(0o755)
    monkeypatch.setattr(qemu, "command", lambda: (str(other),))
    with pytest.raises(Failure, match=r"the model machine needs QEMU 11\.1\.3, not 10\.0\.11"):
        plugin.library()
