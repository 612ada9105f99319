# SPDX-License-Identifier: BSL-1.0
"""The automatic style checks: formatters, lint, licence lines, line length, size of the driver, and headers that compile alone."""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tools import build, pythons
from tools.process import finished

COLUMNS_MAX = 140
CLANG_FORMAT = "clang-format-19"
CPP = (".cpp", ".hpp", ".h", ".c")
CODE = (*CPP, ".S", ".ld", ".py", ".rs", ".toml", ".cmake", ".sh", ".proto", ".js", ".css", ".go", ".java")
CODE_NAMES = ("CMakeLists.txt", "neap", "run", "requirements.txt")
SPDX_WITHIN_LINES = 5
# Generated headers that other headers include, as build targets.
GENERATED = ["drivers/ixgbe/generated/ixgbe/registers.hpp"]
CHECK_SECONDS = 600
NO_DRIVER_CODE = re.compile(r"_test$|^test_|^fuzz_")
# The limit of each driver, by its folder: one for a family of cards. CONTRIBUTING.md gives the reasons. About 120 lines of ixgbe are the
# table of settings (settings.cpp), which a reader can skip, and about 150 are for X540 and X550.
DRIVER_LINES_MAX = {"drivers/ixgbe": 2550, "drivers/virtio": 1000, "drivers/virtio_bus": 300}


def files() -> list[Path]:
    """Returns the checkout's own files: tracked files, and new files that git does not ignore."""
    argv = ["git", "-C", str(build.REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    if done.returncode == 0:
        names = [build.REPOSITORY / name for name in done.stdout.decode().split("\0") if name]
    else:
        names = [path for path in build.REPOSITORY.rglob("*") if build.BUILD not in path.parents]
    return sorted(path for path in names if path.is_file())


def check() -> Iterator[tuple[str, list[str]]]:
    """Runs each check. Yields the check's name and the list of its complaints, which is empty on success."""
    code = [path for path in files() if path.suffix in CODE or path.name in CODE_NAMES]
    yield "licence line", without_licence(code)
    yield "line length", too_long(code)
    yield "clang-format", clang_format([path for path in code if path.suffix in CPP])
    yield "rustfmt", rustfmt()
    yield "ruff check", _ruff("check", "--quiet", "--output-format=concise")
    yield "ruff format", _ruff("format", "--check", "--output-format=concise")
    yield "size of the drivers", too_large([path for path in code if path.suffix in CPP])
    yield "headers compile alone", headers([path for path in code if path.suffix == ".hpp"])


def without_licence(code: Sequence[Path]) -> list[str]:
    complaints = []
    for path in code:
        if not any("SPDX-License-Identifier:" in line for line in path.read_text(errors="replace").splitlines()[:SPDX_WITHIN_LINES]):
            complaints.append(f"{_short(path)}: no SPDX-License-Identifier in its first {SPDX_WITHIN_LINES} lines")
    return complaints


def too_long(code: Sequence[Path]) -> list[str]:
    return [
        f"{_short(path)}:{number}: {len(line)} columns, {COLUMNS_MAX} is the limit"
        for path in code
        if path.name != "requirements.txt"
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]


def too_large(code: Sequence[Path]) -> list[str]:
    """Returns a complaint for each driver that has too many lines of code, without blank lines, comments and tests."""
    complaints = []
    for folder, limit in DRIVER_LINES_MAX.items():
        ours = [path for path in code if _short(path).startswith(f"{folder}/") and not NO_DRIVER_CODE.search(path.stem)]
        lines = [line.strip() for path in ours for line in path.read_text().splitlines()]
        count = sum(1 for line in lines if line and not line.startswith("//"))
        if count >= limit:
            complaints.append(f"{folder}: {count} lines of code; it stays below {limit}")
    return complaints


def clang_format(sources: Sequence[Path]) -> list[str]:
    def complain(path: Path) -> list[str]:
        done = _run([CLANG_FORMAT, "--dry-run", "-Werror", str(path)])
        return [] if done.returncode == 0 else [f"{_short(path)}: {CLANG_FORMAT} -i would change it"]

    return _each(complain, sources)


def rustfmt() -> list[str]:
    program = build.find_rustfmt()
    if program is None:
        return ["there is no rustfmt"]
    complaints = []
    for path in files():
        # rustfmt gets the root file of each crate, and checks the crate's modules as well. Each file in tests/ is the root of a crate.
        if path.suffix == ".rs" and (path.name in ("main.rs", "lib.rs", "build.rs") or path.parent.name == "tests"):
            done = _run([program, "--edition", "2021", "--check", "--color", "never", "-l", str(path)])
            if done.returncode != 0:
                complaints += [f"{line}: rustfmt would change it" for line in done.stdout.splitlines()] or [done.stderr.strip()[:200]]
    return complaints


def headers(candidates: Sequence[Path]) -> list[str]:
    """Returns complaints about headers that compile alone neither in the image's build nor in the host build. A header that a source of the
    image includes first needs no check, because the image's build has compiled it."""
    databases = [build.build("image-debug") / "compile_commands.json", build.build("host", GENERATED) / "compile_commands.json"]
    flags = [FlagsByFolder(database) for database in databases]
    done_by_build = included_first(databases[0])

    def complain(path: Path) -> list[str]:
        first_error = ""
        for argv, directory in filter(None, (of.near(path) for of in flags)):
            done = _run([*argv, "-fsyntax-only", "-x", "c++", "-include", str(path), os.devnull], directory)
            if done.returncode == 0:
                return []
            first_error = first_error or next((line for line in done.stderr.splitlines() if "error" in line), "does not compile alone")
        return [f"{_short(path)}: {first_error or 'no source near it is compiled'}"]

    return _each(complain, [path for path in candidates if path not in done_by_build])


def included_first(database: Path) -> set[Path]:
    """Returns the headers of this checkout that a source in a compile_commands.json includes before any other code."""
    found = set()
    sources = (Path(row["directory"], row["file"]) for row in json.loads(database.read_text()))
    for source in sources:
        # A generated source is missing if its target is built on demand only.
        if not source.is_file():
            continue
        if match := re.match(r'(?:\s|//[^\n]*\n)*#include "([^"]+)"', source.read_text(errors="replace")):
            found.add(build.REPOSITORY / match[1])
    return found


class FlagsByFolder:
    """Compiler arguments for headers, from a compile_commands.json. A header gets the arguments of a source in its folder, or in the
    nearest folder above it."""

    def __init__(self, database: Path):
        self._folders: dict[Path, tuple[list[str], Path]] = {}
        for row in json.loads(database.read_text()):
            source = Path(row["directory"], row["file"])
            if source.suffix == ".cpp":
                self._folders.setdefault(source.parent, (self._without_source(shlex.split(row["command"])), Path(row["directory"])))

    def near(self, header: Path) -> tuple[list[str], Path] | None:
        for folder in header.parents:
            if folder in self._folders:
                return self._folders[folder]
            if folder == build.REPOSITORY:
                break
        return next(iter(self._folders.values()), None)

    @staticmethod
    def _without_source(words: list[str]) -> list[str]:
        """Drops `-o X -c Y` and the options for dependency files."""
        kept = []
        skip = False
        for word in words:
            if skip:
                skip = False
            elif word in ("-o", "-c", "-MF", "-MT", "-MQ"):
                skip = True
            elif word not in ("-MD", "-MMD", "-Werror"):
                kept.append(word)
        return kept


def _ruff(*arguments: str) -> list[str]:
    done = _run([str(pythons.environment() / "ruff"), *arguments, "."])
    if done.returncode == 0:
        return []
    lines = [line for line in done.stdout.splitlines() if re.match(r"\S+:\d+:\d+: ", line)]
    return lines or [(done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]]


def _run(argv: Sequence[str], directory: Path = build.REPOSITORY) -> subprocess.CompletedProcess:
    return finished(argv, CHECK_SECONDS, cwd=directory)


def _each(function: Callable[[Path], list[str]], paths: Sequence[Path]) -> list[str]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [complaint for complaints in pool.map(function, paths) for complaint in complaints]


def _short(path: Path) -> str:
    return str(path.relative_to(build.REPOSITORY))
