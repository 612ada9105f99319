# SPDX-License-Identifier: BSL-1.0
import json
from pathlib import Path

import pytest

from tools import style


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(style.build, "REPOSITORY", tmp_path)
    monkeypatch.setattr(style.build, "BUILD", tmp_path / "build")
    monkeypatch.setattr(style.build, "build", lambda preset, targets=(): tmp_path / "build" / preset)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_file_without_its_licence_line_is_named(tree: Path) -> None:
    good = write(tree / "good.cpp", "// SPDX-License-Identifier: BSL-1.0\n")
    bad = write(tree / "bad.cpp", "// nothing\n")
    assert style.without_licence([good, bad]) == ["bad.cpp: no SPDX-License-Identifier in its first 5 lines"]


def test_a_line_that_is_too_long_is_named(tree: Path) -> None:
    assert style.too_long([write(tree / "long.py", "x" * 140 + "\n" + "y" * 141 + "\n")]) == ["long.py:2: 141 columns, 140 is the limit"]


def test_a_header_that_needs_another_ones_includes_is_named(tree: Path) -> None:
    write(tree / "kernel/needed.hpp", "#pragma once\nusing Number = int;\n")
    leaning = write(tree / "kernel/leaning.hpp", "#pragma once\ninline Number number = 0;\n")
    alone = write(tree / "kernel/alone.hpp", '#pragma once\n#include "kernel/needed.hpp"\ninline Number number = 0;\n')
    command = f"g++ -std=c++20 -I{tree} -MD -MT x.o -MF x.d -o x.o -c {tree}/kernel/x.cpp"
    write(tree / "kernel/x.cpp", '// A comment.\n#include "kernel/own.hpp"\n#include "kernel/leaning.hpp"\n')
    row = {"directory": str(tree), "file": str(tree / "kernel/x.cpp"), "command": command}
    write(tree / "build/image-debug/compile_commands.json", json.dumps([row]))
    helper = write(tree / "kernel/test_helper.hpp", "#ifndef HOST\n#error only in the host build\n#endif\n")
    write(tree / "build/host/compile_commands.json", json.dumps([{**row, "command": command.replace("g++", "g++ -DHOST")}]))
    own = write(tree / "kernel/own.hpp", "not compiled here again: the build had to compile it with nothing before it\n")
    complaints = style.headers([leaning, alone, helper, own])
    assert len(complaints) == 1
    assert complaints[0].startswith("kernel/leaning.hpp: ") and "Number" in complaints[0]


def test_files_outside_git_are_found_without_build_output(tree: Path) -> None:
    mine = write(tree / "a.cpp", "")
    write(tree / "build/b.cpp", "")
    assert style.files() == [mine]


def test_a_driver_with_too_many_lines_is_named_without_comments_and_tests(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(style, "DRIVER_LINES_MAX", {"drivers/one": 3, "drivers/two": 3})
    folder = tree / "drivers/one"
    driver = [write(folder / "a.cpp", "// why\n\nint a;\nint b;  // what\n"), write(folder / "a_test.cpp", "int c;\n" * 9)]
    driver.append(write(tree / "drivers/two/fuzz_b.cpp", "int e;\n" * 9))
    assert style.too_large(driver) == []
    assert style.too_large([*driver, write(folder / "b.hpp", "int d;\n")]) == ["drivers/one: 3 lines of code; it stays below 3"]
