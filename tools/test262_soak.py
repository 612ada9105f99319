# SPDX-License-Identifier: BSL-1.0
"""`./neap soak test262 --folder DIR`: test262, the conformance suite of JavaScript, on the web server's engine: on the host and the image.

DIR is a checkout of the suite, with `harness` and `test`. A test runs in sloppy and in strict mode, unless its metadata says otherwise. The
same runner (apps/webserver/engine/test262.hpp) is a host program and an image. A run that passes on the host and not on the image is a
finding. Runs that fail on both are differences of the engine, whose number is printed; build/test262-failures.txt lists them.

`--every N` takes each N-th test.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from tools import build, packages, progress, qemu, run, web_archive
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.machine import Machine, MachineError
from tools.process import finished

TESTS_A_BATCH = 400
WATCHDOG_MS = {"host": 20_000, "image": 120_000}
BATCH_SECONDS = 3600
START_SECONDS = 60
MEMORY = "1G"
SHOWN_FINDINGS = 50
HOST_PROGRAM, IMAGE = "webserver_test262", "webserver_test262"
LINE = re.compile(r"262 (\d+) (pass|fail)(?: (.*))?")
METADATA = re.compile(r"/\*---(.*?)---\*/", re.DOTALL)
RELATIVE = re.compile(r"""["'`](\.{1,2}/[^"'`\n]{1,300})["'`]""")
# Tests with these features are left out: QuickJS-ng 0.17 does not have them, or they need threads, which an image does not have.
SKIPPED_FEATURES = frozenset(
    """
    Atomics Atomics.pause Atomics.waitAsync SharedArrayBuffer IsHTMLDDA ShadowRealm Temporal decorators export-defer
    explicit-resource-management import-bytes import-defer import-text json-modules source-phase-imports source-phase-imports-module-source
    immutable-arraybuffer tail-call-optimization host-gc-required cross-realm-agents Intl-enumeration joint-iteration
    legacy-regexp canonical-tz await-dictionary nonextensible-applies-to-private
    """.split()
)
SKIPPED_FLAGS = frozenset({"CanBlockIsFalse", "CanBlockIsTrue"})
SKIPPED_FOLDERS = ("intl402/", "staging/", "annexB/built-ins/RegExp/legacy-accessors/", "harness/")


@dataclasses.dataclass(frozen=True)
class Metadata:
    flags: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    includes: tuple[str, ...] = ()
    phase: str = ""
    error: str = ""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a test: its line in the runner's list, and the files of the suite that it needs."""

    path: str
    mode: str
    metadata: Metadata
    files: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.path} ({self.mode})"

    def line(self) -> str:
        data = self.metadata
        fields = [f"test/{self.path}", self.mode, "async" if "async" in data.flags else "-", data.phase or "-", data.error or "-"]
        return "\t".join([*fields, ",".join(data.includes) or "-"])


# --- The suite ---------------------------------------------------------------------------------------------------------------------------
def metadata_of(text: str) -> Metadata:
    """Reads the part of YAML that the suite's metadata uses."""
    match = METADATA.search(text)
    if match is None:
        return Metadata()
    lines = match[1].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    negative = re.search(r"^negative:\s*\n((?:[ \t]+.*\n?)+)", "\n".join(lines), re.MULTILINE)
    parts = dict(re.findall(r"^\s+(phase|type):\s*(\w+)", negative[1], re.MULTILINE)) if negative else {}
    return Metadata(
        flags=frozenset(_list(lines, "flags")),
        features=frozenset(_list(lines, "features")),
        includes=tuple(_list(lines, "includes")),
        phase=parts.get("phase", ""),
        error=parts.get("type", ""),
    )


def _list(lines: Sequence[str], name: str) -> list[str]:
    """The items of a list in the form `name: [a, b]`, on one line or several, or `name:` with lines `  - a`."""
    for at, line in enumerate(lines):
        if not line.startswith(f"{name}:"):
            continue
        rest = line.partition(":")[2].strip()
        if rest.startswith("["):
            text = rest
            while "]" not in text and at + 1 < len(lines):
                at += 1
                text += lines[at]
            return [item.strip().strip("'\"") for item in text.strip("[] \t").rstrip("]").split(",") if item.strip()]
        items = []
        for following in lines[at + 1 :]:
            match = re.fullmatch(r"\s*-\s+(\S+)\s*", following)
            if match is None:
                break
            items.append(match[1])
        return items
    return []


def runs_of(folder: Path, path: str) -> list[Run]:
    """Returns the runs of a test; none if it is left out."""
    text = (folder / "test" / path).read_text(encoding="utf-8", errors="surrogateescape")
    data = metadata_of(text)
    if data.features & SKIPPED_FEATURES or data.flags & SKIPPED_FLAGS or path.startswith(SKIPPED_FOLDERS):
        return []
    if "module" in data.flags:
        modes = ["module"]
    elif "raw" in data.flags:
        modes = ["raw"]
    elif "onlyStrict" in data.flags:
        modes = ["strict"]
    elif "noStrict" in data.flags:
        modes = ["sloppy"]
    else:
        modes = ["sloppy", "strict"]
    files = tuple(sorted(named_files(folder, path, text)))
    return [Run(path, mode, data, files) for mode in modes]


def named_files(folder: Path, path: str, text: str) -> set[str]:
    """Returns the files that a test names by relative paths, and those that they name: modules that it imports."""
    found: set[str] = set()
    waiting = [(path, text)]
    while waiting:
        of, source = waiting.pop()
        for name in RELATIVE.findall(source):
            target = PurePosixPath(os.path.normpath(PurePosixPath(of).parent / name)).as_posix()
            if target in found or target == path or target.startswith("..") or not (folder / "test" / target).is_file():
                continue
            found.add(target)
            waiting.append((target, (folder / "test" / target).read_text(encoding="utf-8", errors="surrogateescape")))
    return found


def tests_of(folder: Path, every: int) -> list[str]:
    """Returns the paths of each `every`-th test, relative to the folder `test`."""
    if not (folder / "harness/assert.js").is_file() or not (folder / "test").is_dir():
        raise UsageError(f"--folder: {folder} is no checkout of test262", "it has the folders `harness` and `test`")
    paths = sorted(path.relative_to(folder / "test").as_posix() for path in (folder / "test").rglob("*.js"))
    return [path for path in paths if "_FIXTURE" not in path][::every]


def archive_of(folder: Path, runs: Sequence[Run]) -> bytes:
    files = {f"harness/{path.name}": path.read_bytes() for path in (folder / "harness").glob("*.js")}
    files |= {f"harness/sm/{path.name}": path.read_bytes() for path in (folder / "harness/sm").glob("*.js")}
    for one in runs:
        files |= {f"test/{path}": (folder / "test" / path).read_bytes() for path in (one.path, *one.files)}
    files["list.txt"] = "".join(f"{one.line()}\n" for one in runs).encode()
    return web_archive.pack(files, "list.txt")


# --- The two systems ---------------------------------------------------------------------------------------------------------------------
def on_host(program: Sequence[str]) -> Callable[[Path], list[str]]:
    """Returns a function that runs an archive and returns the runner's lines."""

    def lines(archive: Path) -> list[str]:
        return finished([*program, str(archive), str(WATCHDOG_MS["host"])], BATCH_SECONDS).stdout.splitlines()

    return lines


def on_image(image: Path) -> Callable[[Path], list[str]]:
    def lines(archive: Path) -> list[str]:
        words = [f"limit={WATCHDOG_MS['image']}ms"]
        with Machine(image, memory=MEMORY, card=False, modules=[archive], arguments=words) as machine:
            try:
                machine.wait_exit(BATCH_SECONDS)
            except MachineError as error:
                progress.say(f"neap: soak: test262: {error.message}")
            return machine.lines

    return lines


def results(folder: Path, runs: Sequence[Run], play: Callable[[Path], list[str]]) -> dict[str, str]:
    """Returns for each run an empty text, or why it failed. A run that ends the whole program is one that failed, and the others go on."""
    found: dict[str, str] = {}
    left = list(runs)
    while left:
        with tempfile.NamedTemporaryFile(prefix="neap-test262-", suffix=".archive") as file:
            file.write(archive_of(folder, left))
            file.flush()
            lines = play(Path(file.name))
        count = 0
        for line in lines:
            if (match := LINE.fullmatch(line.strip())) and int(match[1]) == count:
                found[left[count].name] = "" if match[2] == "pass" else match[3] or "?"
                count += 1
        if count < len(left):
            found[left[count].name] = "the program ended: " + " / ".join(line for line in lines[-3:] if not LINE.match(line))
        left = left[count + 1 :]
    return found


def findings_of(host: dict[str, str], image: dict[str, str]) -> list[str]:
    return [f"{name}: {image.get(name, 'not run')}" for name, reason in host.items() if not reason and image.get(name, "not run")]


def soak(folder: str | None = None, every: int = 1) -> int:
    """Compares the two systems. Returns 1 if a run passes on the host and not on the image."""
    if folder is None:
        raise UsageError("soak test262 needs a checkout of the suite", "./neap soak test262 --folder DIR")
    if every < 1:
        raise UsageError(f"--every takes 1 or more, not {every}")
    suite = Path(folder)
    paths = tests_of(suite, every)
    packages.require("host-tests", "sources")
    run.require_build_packages()
    qemu.command()
    program = build.build("host", [HOST_PROGRAM]) / "apps/webserver" / HOST_PROGRAM
    build.build("image", [f"{IMAGE}.elf"])
    return compare(suite, paths, on_host([str(program)]), on_image(build.image("webserver", "image").with_name(f"{IMAGE}.elf")))


def compare(suite: Path, paths: Sequence[str], host: Callable[[Path], list[str]], image: Callable[[Path], list[str]]) -> int:
    runs, skipped = [], 0
    for path in paths:
        of_test = runs_of(suite, path)
        runs += of_test
        skipped += not of_test
    if not runs:
        raise Failure("none of these tests is one for this engine")
    progress.say(f"neap: soak: test262: {len(paths)} tests, {skipped} left out, {len(runs)} runs")
    batches = list(_batches(runs))
    parts = run.in_lanes(lambda batch: (results(suite, batch, host), results(suite, batch, image)), batches, os.cpu_count() or 1)
    of_host = {name: reason for part, _ in parts for name, reason in part.items()}
    of_image = {name: reason for _, part in parts for name, reason in part.items()}
    findings = findings_of(of_host, of_image)
    print("\n".join(table(of_host, of_image, skipped)), flush=True)
    failures = build.BUILD / "test262-failures.txt"
    failures.parent.mkdir(parents=True, exist_ok=True)
    failures.write_text("".join(f"{name}: {reason}\n" for name, reason in sorted(of_host.items()) if reason))
    for finding in findings[:SHOWN_FINDINGS]:
        print(f"neap: soak: test262: FINDING: {finding}", flush=True)
    print(f"{len(findings)} runs pass on the host and not on the image; {failures} lists those that fail on both", flush=True)
    return EXIT_FAILURE if findings else 0


def _batches(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    for first in range(0, len(runs), TESTS_A_BATCH):
        yield runs[first : first + TESTS_A_BATCH]


def table(host: dict[str, str], image: dict[str, str], skipped: int) -> list[str]:
    """A row for each part of the suite."""
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for name, reason in host.items():
        part = "/".join(name.split("/")[:2])
        rows[part]["runs"] += 1
        rows[part]["host"] += not reason
        rows[part]["image"] += not image.get(name, "not run")
    lines = [f"{'part':50}{'runs':>8}{'host':>8}{'image':>8}"]
    lines += [f"{part:50}{row['runs']:>8}{row['host']:>8}{row['image']:>8}" for part, row in sorted(rows.items())]
    totals = sum(rows.values(), collections.Counter())
    lines.append(f"{'all':50}{totals['runs']:>8}{totals['host']:>8}{totals['image']:>8}")
    return [*lines, f"{'tests left out':50}{skipped:>8}"]
