# SPDX-License-Identifier: BSL-1.0
"""All scripts of this folder, a test each. A script of deviations.txt has to fail."""

from pathlib import Path

import pytest

from tools.packetdrill import command

KNOWN = command.deviations(command.DEVIATIONS)


@pytest.fixture(scope="session")
def results() -> dict[Path, command.Result]:
    return {result.script: result for result in command.run_scripts(command.all_scripts(), command.LIBRARY)}


@pytest.mark.parametrize("script", command.all_scripts(), ids=command.short)
def test_script(script: Path, results: dict[Path, command.Result]):
    failure = results[script].failure
    if command.short(script) in KNOWN:
        assert failure, f"passes, but deviations.txt has it: {KNOWN[command.short(script)]}"
    else:
        assert not failure, failure


@pytest.mark.parametrize("script", command.all_scripts(), ids=command.short)
def test_names_its_clause(script: Path):
    first = script.read_text().splitlines()[1]
    assert first.startswith("// RFC ") or first.startswith("// CVE-"), first
