# SPDX-License-Identifier: BSL-1.0
"""Tests of `run --cpu` with a fake QEMU, whose lists are pieces of those of QEMU 11.1.3. tests/target/emulated_cpu_test.py uses QEMU."""

from pathlib import Path

import pytest

from tools import cli, emulated_cpu, qemu, run
from tools.errors import UsageError

QEMU = """\
#!/bin/sh
case "$*" in
--version) echo "QEMU emulator version 11.1.3 (Debian)" ;;
"-cpu help") cat <<'END'
Available CPUs:
  Haswell               (alias configured by machine type)
  Haswell-noTSX         (alias of Haswell-v2)
  Haswell-v1            Intel Core Processor (Haswell)
  Haswell-v2            Intel Core Processor (Haswell, no TSX)
  host                  processor with all supported host features
  max                   Enables all features supported by the accelerator in the current host

Recognized CPUID flags:
  3dnow 3dnowext avx2
END
;;
"-device Haswell"*-x86_64-cpu,help) cat <<'END'
Haswell-x86_64-cpu options:
  avx2=<bool>
  family=<uint64>
  model-id=<string>
  rdrand=<bool>
END
;;
esac
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "qemu").write_text(QEMU)
    (tmp_path / "qemu").chmod(0o755)
    return (str(tmp_path / "qemu"),)


@pytest.mark.parametrize("text", ["Haswell", "Haswell-v2", "Haswell,-avx2,+rdrand,family=6", "Haswell,avx2=off,family=0x6", "max"])
def test_a_model_of_qemu_with_its_features_is_taken(text: str, command: tuple[str, ...]) -> None:
    emulated_cpu.require(text, command)


ACCEPTED = "it has Haswell, Haswell-noTSX, max"


@pytest.mark.parametrize(
    ("text", "complaint", "hint"),
    [
        ("i486", "QEMU emulates no CPU model 'i486'", ACCEPTED),
        ("haswel", "QEMU emulates no CPU model 'haswel'", f"near that name: Haswell, Haswell-noTSX; {ACCEPTED}"),
        ("", "QEMU emulates no CPU model ''", ACCEPTED),
        ("Recognized", "QEMU emulates no CPU model 'Recognized'", ACCEPTED),
        ("host", "the CPU model host needs KVM", "--accel kvm gives the machine this host's CPU"),
        ("Haswell,+avx", "CPU model Haswell has no feature 'avx'", "near that name: avx2; QEMU's -cpu help lists all of them"),
        ("Haswell,", "a feature is missing after a comma", "Haswell,-avx2,+rdrand takes one feature away and adds another"),
        ("Haswell,avx2", "the feature avx2 takes on or off, not ''", "+avx2 or -avx2"),
        ("Haswell,avx2=2", "the feature avx2 takes on or off, not '2'", "+avx2 or -avx2"),
        ("Haswell,+avx2=on", "'+avx2=on' has both a sign and a value", "+avx2, -avx2 or avx2=VALUE"),
        ("Haswell,+family", "the feature family is no switch", "family=VALUE sets it"),
        ("Haswell,family=six", "the feature family takes a number, not 'six'", None),
    ],
)
def test_what_qemu_would_refuse_is_one_error_with_what_it_accepts(
    text: str, complaint: str, hint: str | None, command: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as caught:
        emulated_cpu.require(text, command)
    assert (caught.value.message, caught.value.hint) == (f"--cpu: {complaint}", hint)


def test_a_wrong_model_is_found_before_anything_is_built(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "command", lambda: command)
    monkeypatch.setattr(run, "require_build_packages", lambda **_: pytest.fail("building began"))
    monkeypatch.setattr(run.build, "applications", lambda: ["hello"])
    with pytest.raises(UsageError, match="emulates no CPU model 'i486'"):
        run.run(run.Options("hello", cpu="i486"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--accel", "kvm"], "--cpu is for emulated cores: with KVM the machine has this host's CPU"),
        (["--accel", "auto"], "--cpu is for emulated cores"),
        (["--vfio", "0000:03:00.0"], "--cpu is for emulated cores"),
        (
            ["--model", "e5-2690", "--load", "etc"],
            "--model and --cpu: the modelled e5-2690 has a CPUID of its own, and figures for no other CPU",
        ),
    ],
)
def test_a_machine_whose_cpu_is_given_otherwise_takes_no_model(
    words: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "require_build_packages", lambda **_: pytest.fail("building began"))
    assert cli.main(["run", "memcached", "--cpu", "Haswell", *words]) == 2
    assert f"neap: error: {complaint}" in capsys.readouterr().err


def test_features_that_the_emulator_lacks_are_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "qemu-system-x86_64: warning: TCG doesn't support requested feature: CPUID[eax={}].{} [bit 1]\n"
    named = line.format("01h", "ECX.pcid") + line.format("07h,ecx=00h", "EBX.rtm")
    (tmp_path / "log").write_text("qemu: another warning\n" + named + named)
    emulated_cpu.report_lacking("Haswell,-avx2", tmp_path / "log")
    assert capsys.readouterr().err == "neap: Haswell without pcid, rtm, which QEMU does not emulate\n"
    (tmp_path / "log").write_text("qemu: another warning\n")
    emulated_cpu.report_lacking("Haswell", tmp_path / "log")
    emulated_cpu.report_lacking("Haswell", tmp_path / "none")
    assert capsys.readouterr().err == ""
