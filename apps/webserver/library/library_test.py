# SPDX-License-Identifier: BSL-1.0
"""The library of scripts behaves as Node's own modules: each program of tests/programs prints the same lines with both.

The library runs in Node over natives in plain JavaScript (tests/mock_*.js), and in the engine with the program `webserver_library` of the
host build, where only HTTP is a mock. `http.js` also runs over the server's own HTTP (`webserver_library_http`). `own.js` has no
counterpart in Node: it checks itself.
"""

import difflib
import functools
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from tools.machine import REPOSITORY

LIBRARY = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (LIBRARY / "tests" / "programs").glob("*.js"))
COMPARED = [name for name in PROGRAMS if name != "own"]
BUILT = Path(os.environ.get("NEAP_HOST_BUILD", REPOSITORY / "build/host")) / "apps/webserver/library/tests"
LINES_MAX = 500
TIMEOUT_S = 120


@functools.cache
def run(mode: str, program: str) -> list[str]:
    """Returns the lines of a program: of Node itself (`node`), of the library in Node (`library`), or of the library in the
    engine, with the mock of HTTP (`engine`) or with the server's own (`http`)."""
    file = str(LIBRARY / "tests" / "programs" / f"{program}.js")
    if mode == "engine":
        command = [str(BUILT / "webserver_library"), str(LIBRARY / "tests"), file]
    elif mode == "http":
        command = [str(BUILT / "webserver_library_http"), str(LIBRARY / "tests" / "over_http_setup.js"), file]
    else:
        node = shutil.which("node")
        assert node, "node is missing"
        command = [node, str(LIBRARY / "tests" / "run.js"), mode, file]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout, "the program printed nothing"
    return result.stdout.splitlines()


@pytest.mark.parametrize(("program", "mode"), [*product(COMPARED, ["library", "engine"]), ("http", "http")])
def test_a_program_prints_the_same_lines_with_node_and_with_the_library(program: str, mode: str) -> None:
    node, library = run("node", program), run(mode, program)
    difference = list(difflib.unified_diff(node, library, "node", mode, lineterm="", n=1))
    assert not difference, "\n".join(difference[:60])


@pytest.mark.parametrize("mode", ["library", "engine"])
def test_the_library_differs_from_node_only_as_documented(mode: str) -> None:
    failed = [line for line in run(mode, "own") if not line.startswith("ok ")]
    assert not failed, "\n".join(failed)


def test_each_file_has_a_licence_line_and_fits_the_limit() -> None:
    for path in sorted(LIBRARY.rglob("*.js")):
        lines = path.read_text().splitlines()
        assert "SPDX-License-Identifier" in lines[0], path
        assert path.parts[-2] == "programs" or len(lines) <= LINES_MAX, f"{path}: {len(lines)} lines"


def test_each_module_that_the_library_requires_exists() -> None:
    for path in sorted(LIBRARY.glob("*.js")):
        for name in re.findall(r"require\('([^']+)'\)", path.read_text()):
            files = (LIBRARY / f"{name}.js", LIBRARY / f"{name.replace('/', '_')}.js")
            assert any(file.exists() for file in files), f"{path.name} requires {name}"
