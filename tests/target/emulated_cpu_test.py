# SPDX-License-Identifier: BSL-1.0
"""`run --cpu` with the real QEMU: its lists have the expected form, and an image boots on the CPU that was named."""

import pytest

from tests.target.images import image_path
from tools import emulated_cpu, qemu
from tools.errors import UsageError
from tools.machine import SUCCESS, Machine

TIMEOUT_SECONDS = 90


def test_qemus_lists_are_understood() -> None:
    models = emulated_cpu.models(qemu.command())
    assert {"max", "qemu64", "Haswell", "Skylake-Server", "EPYC"} <= set(models) and "host" not in models
    types = emulated_cpu.features(qemu.command(), "Haswell")
    assert types["avx2"] == "bool" and types["family"].startswith(("int", "uint"))
    with pytest.raises(UsageError, match="no feature 'avx3'"):
        emulated_cpu.require("Haswell,+avx3", qemu.command())


@pytest.mark.parametrize(
    ("cpu", "name", "lacking"),
    [("Haswell,-avx2", "Intel Core Processor (Haswell)", "Haswell without pcid"), ("EPYC", "AMD EPYC Processor", "EPYC without ")],
)
def test_an_image_boots_on_the_named_cpu(cpu: str, name: str, lacking: str, capsys: pytest.CaptureFixture[str]) -> None:
    emulated_cpu.require(cpu, qemu.command())
    with Machine(image_path("hello"), cores=2, memory="256M", card=False, cpu=cpu) as machine:
        emulated_cpu.report_lacking(cpu, machine.qemu_log)
        assert machine.wait_exit(TIMEOUT_SECONDS) == SUCCESS
    assert any(line.startswith(f"cpu: {name}, ") for line in machine.lines)
    assert f"neap: {lacking}" in capsys.readouterr().err
