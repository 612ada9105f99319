# SPDX-License-Identifier: BSL-1.0
"""The library of scripts behaves as Node's own modules: each program of tests/programs prints the same lines with both.

The library runs in Node over natives in plain JavaScript (tests/mock_*.js). `own.js` has no counterpart in Node: it checks itself.
"""

import difflib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (LIBRARY / "tests" / "programs").glob("*.js"))
LINES_MAX = 500
TIMEOUT_S = 120


def run(mode: str, program: str) -> list[str]:
    node = shutil.which("node")
    assert node, "node is missing"
    command = [node, str(LIBRARY / "tests" / "run.js"), mode, str(LIBRARY / "tests" / "programs" / f"{program}.js")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout, "the program printed nothing"
    return result.stdout.splitlines()


@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "own"])
def test_a_program_prints_the_same_lines_with_node_and_with_the_library(program: str) -> None:
    node, library = run("node", program), run("library", program)
    difference = list(difflib.unified_diff(node, library, "node", "library", lineterm="", n=1))
    assert not difference, "\n".join(difference[:60])


def test_the_library_differs_from_node_only_as_documented() -> None:
    failed = [line for line in run("library", "own") if not line.startswith("ok ")]
    assert not failed, "\n".join(failed)


def test_each_file_has_a_licence_line_and_fits_the_limit() -> None:
    for path in sorted(LIBRARY.rglob("*.js")):
        lines = path.read_text().splitlines()
        assert "SPDX-License-Identifier" in lines[0], path
        assert path.parts[-2] == "programs" or len(lines) <= LINES_MAX, f"{path}: {len(lines)} lines"


def test_each_module_that_the_library_requires_exists() -> None:
    for path in sorted(LIBRARY.glob("*.js")):
        for name in re.findall(r"require\('([^']+)'\)", path.read_text()):
            assert (LIBRARY / f"{name.replace('/', '_')}.js").exists(), f"{path.name} requires {name}"
