# SPDX-License-Identifier: BSL-1.0
"""Finds the cross compiler in the cache, or builds it there step by step from toolchain/recipe.toml.

The toolchain's name in the cache is the hash of its recipe: pinned sources, patches, and steps. A build that was stopped or killed resumes
with the step that was running. That step starts in a fresh directory, because files of a killed compiler may be damaged. If two builds run
at the same time, the second waits for the first.
"""

import concurrent.futures
import dataclasses
import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

from tools import cache, progress, sources
from tools.archive import Archive
from tools.errors import Failure
from tools.foreign import read_bounded
from tools.process import kill_running_commands, output_of, run_logged

RECIPE_DIRECTORY = Path(__file__).resolve().parent.parent / "toolchain"
TARGET = "x86_64-neap-elf"
SOURCES = ("binutils", "gcc", "newlib")
STATIC_LIBRARIES = ("gmp", "mpfr", "mpc")
DOWNLOAD = "download"
DOWNLOAD_SECONDS = 5
# The sources are unpacked one by one, so that the first step compiles while the largest is still unpacked.
UNPACK_SECONDS = {"binutils": 5, "gcc": 20, "newlib": 3}
# Peak size of the work directory (2.2 GB) and of the result (0.2 GB), with a reserve.
NEEDED_BYTES = 3_000_000_000
STEP_TIMEOUT_SECONDS = 4 * 3600
KILL_INTERVAL_SECONDS = 0.1
# Installed files that Neap's build does not need.
LEFT_OUT = (
    "share/info",
    "share/man",
    f"libexec/gcc/{TARGET}/*/install-tools",
    f"lib/gcc/{TARGET}/*/install-tools",
)
# The Debian package neap-toolchain installs one toolchain there, beside a file with the key of its recipe.
PACKAGED_PREFIX = Path("/usr/lib/neap/toolchain")
PACKAGED_KEY = "recipe-key"
# The environment variable that names an exported toolchain: a file, a folder, or an URL of either (tools/exchange.py).
ARCHIVE_VARIABLE = "NEAP_TOOLCHAIN_ARCHIVE"
TRIAL = '#include <expected>\n#include <print>\nint trial() { std::println("{}", 1); return std::expected<int, int>{2}.value(); }\n'


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of the recipe. Its commands run in `directory`. Each attempt first removes `directory`, or its subdirectory `anew` if given.
    A step with the name of an earlier step in `beside` runs at the same time as that one."""

    name: str
    seconds: float
    directory: str
    commands: list[list[str]]
    anew: str
    beside: str


class Recipe:
    """toolchain/recipe.toml with its pins and patches."""

    def __init__(self):
        directory = RECIPE_DIRECTORY
        try:
            self._table = tomllib.loads((directory / "recipe.toml").read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise Failure(f"cannot read toolchain/recipe.toml: {error}") from None
        all_pins = sources.pins(directory / "sources.toml")
        self.pins = {name: all_pins[name] for name in SOURCES}
        self.patches = {name: sorted((directory / "patches" / name).glob("*.patch")) for name in SOURCES}
        self.epoch = int(self._table["source_date_epoch"])

    def key(self) -> str:
        """Returns the hash that names the product of this recipe. Comments and the measured seconds do not change it."""
        table = json.loads(json.dumps(self._table))
        for step in table["step"]:
            del step["seconds"]
        parts: list[str | bytes] = [json.dumps(table, sort_keys=True)]
        for name in SOURCES:
            parts.append(self.pins[name].identity())
            for patch in self.patches[name]:
                parts += [patch.name, patch.read_bytes()]
        return cache.digest(*parts)

    def steps(self, work: Path, prefix: Path, jobs: int) -> list[Step]:
        values = {"work": str(work), "prefix": str(prefix), "jobs": str(jobs)}

        def fill(word: str) -> str:
            for name, text in self._table["variables"].items():
                word = word.replace(f"{{{name}}}", text)
            for name, text in values.items():
                word = word.replace(f"{{{name}}}", text)
            return word

        def words(command: list[str]) -> list[str]:
            flat: list[str] = []
            for word in command:
                flat += self._table["lists"][word[1:]] if word.startswith("@") else [word]
            return [fill(word) for word in flat]

        return [
            Step(
                name=row["name"],
                seconds=row["seconds"],
                directory=row["directory"],
                commands=[words(command) for command in row["commands"]],
                anew=row.get("anew", ""),
                beside=row.get("beside", ""),
            )
            for row in self._table["step"]
        ]


def entry(recipe: Recipe | None = None) -> cache.Entry:
    return cache.Entry("toolchain", (recipe or Recipe()).key())


def find() -> Path | None:
    """Returns the toolchain's prefix: $NEAP_TOOLCHAIN, the cache's entry for this recipe, or the one of the Debian package neap-toolchain
    if it was built by this recipe. None if there is none."""
    named = os.environ.get("NEAP_TOOLCHAIN")
    if named:
        if not (Path(named) / "bin" / f"{TARGET}-g++").is_file():
            raise Failure(f"NEAP_TOOLCHAIN={named} holds no {TARGET}-g++")
        return Path(named)
    place = entry()
    return place.path if place.ready else _packaged(place.path.name)


def _packaged(key: str) -> Path | None:
    try:
        packaged_key = read_bounded(PACKAGED_PREFIX / PACKAGED_KEY, 1000).decode().strip()
    except (OSError, ValueError):
        return None
    usable = packaged_key == key and (PACKAGED_PREFIX / "bin" / f"{TARGET}-g++").is_file()
    return PACKAGED_PREFIX if usable else None


def must_be_built() -> bool:
    """True if `require` would build the toolchain, which needs more packages of the host than an import."""
    return find() is None and not os.environ.get(ARCHIVE_VARIABLE)


def require() -> Path:
    """Returns the prefix of the toolchain. If there is none, it is imported from $NEAP_TOOLCHAIN_ARCHIVE, or built."""
    return find() or _imported() or build()


def _imported() -> Path | None:
    from tools import exchange

    named = os.environ.get(ARCHIVE_VARIABLE)
    return exchange.import_named(named) if named else None


def build(archive: Archive | None = None) -> Path:
    """Builds the toolchain into the cache, or resumes an earlier build. Returns its prefix."""
    while True:
        recipe = Recipe()
        place = entry(recipe)
        if place.ready:
            return place.path
        if re.search(r"\s", str(place.path)):
            hint = "set XDG_CACHE_HOME to a path without one (Neap itself may lie anywhere)"
            raise Failure(f"GCC cannot be built below a path with a space: {place.path}", hint)
        try:
            with place.making(keep_partial=True, work="builds the toolchain") as mine:
                if mine:
                    Build(recipe, place, archive).run()
        except sources.Superseded:
            cache.remove(place.path)


class Build:
    """One build in `<cache>/toolchain/<key>.work`, which is removed at the end. Its logs in `<key>.logs` stay."""

    def __init__(self, recipe: Recipe, place: cache.Entry, archive: Archive | None):
        self.recipe = recipe
        self.prefix = place.path
        self.work = place.path.with_name(f"{place.path.name}.work")
        self.logs = place.path.with_name(f"{place.path.name}.logs")
        self.archive = archive
        self.steps = recipe.steps(self.work, self.prefix, os.cpu_count() or 1)

    def run(self) -> None:
        """Builds the toolchain. Raises Superseded if a newer source was accepted, because the recipe then has another hash."""
        cache.require_space(self.prefix.parent, NEEDED_BYTES - _size_bytes(self.work), "building the toolchain")
        first, *rest = self.steps
        beside = [step for step in rest if step.beside == first.name]
        later = [step for step in rest if step not in beside]
        # The first step and the tasks beside it share the host's cores.
        shared_seconds = first.seconds + sum(step.seconds for step in beside) + sum(UNPACK_SECONDS.values())
        shared = ", ".join(["unpacking", first.name, *(step.name for step in beside)])
        weights = [(DOWNLOAD, DOWNLOAD_SECONDS), (shared, shared_seconds), *((step.name, step.seconds) for step in later)]
        plan = progress.Plan("toolchain", weights)
        progress.say(f"neap: building the cross compiler, once for this user; logs in {self.logs}")
        if self._done(DOWNLOAD):
            plan.skip(DOWNLOAD)
        else:
            cache.remove(self.prefix)
            cache.remove(self.work)
            self.prefix.mkdir(parents=True)
            with plan.run(DOWNLOAD):
                self._download()
            self._mark(DOWNLOAD)
        if all(self._done(name) for name in (*(f"unpack {name}" for name in SOURCES), first.name, *(step.name for step in beside))):
            plan.skip(shared)
        else:
            with plan.run(shared):
                self._once(f"unpack {first.name}", lambda: self._unpack(first.name))
                together(lambda: self._step_once(first), lambda: self._beside(first, beside))
        for step in later:
            if self._done(step.name):
                plan.skip(step.name)
                continue
            with plan.run(step.name):
                self._step_once(step)
        self._finish()

    def _beside(self, first: Step, steps: list[Step]) -> None:
        for name in SOURCES:
            if name != first.name:
                self._once(f"unpack {name}", lambda name=name: self._unpack(name))
        for step in steps:
            self._step_once(step)

    def _step_once(self, step: Step) -> None:
        self._once(step.name, lambda: self._run_step(step))

    def _once(self, name: str, task: Callable[[], None]) -> None:
        """Runs a task, unless an earlier build has finished it."""
        if not self._done(name):
            task()
            self._mark(name)

    def _marker(self, name: str) -> Path:
        return self.work / "done" / name.replace(" ", "-")

    def _done(self, name: str) -> bool:
        return self._marker(name).is_file()

    def _mark(self, name: str) -> None:
        with cache.disk_full_named("building the toolchain"):
            os.sync()
            self._marker(name).parent.mkdir(parents=True, exist_ok=True)
            self._marker(name).write_text("done\n")

    def _log(self, name: str) -> Path:
        return self.logs / f"{name.replace(' ', '-')}.log"

    def _download(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        archive = self.archive or Archive()
        for name in SOURCES:
            sources.fetch(self.recipe.pins[name], archive, self._packages(name))
        static = self.work / "static"
        static.mkdir(exist_ok=True)
        for library in STATIC_LIBRARIES:
            found = output_of(["gcc", f"-print-file-name=lib{library}.a"]).strip()
            if not os.path.isabs(found):
                raise Failure(f"lib{library}.a is missing", f"install lib{library}-dev")
            (static / f"lib{library}.a").symlink_to(found)

    def _packages(self, name: str) -> Path:
        return self.work / "packages" / name

    def _unpack(self, name: str) -> None:
        log, pin = self._log(f"unpack {name}"), self.recipe.pins[name]
        files = sources.fetch(pin, self.archive or Archive(), self._packages(name))  # they are there; this checks them again
        sources.unpack_tree(pin, files, self.work / name, log)
        for patch in self.recipe.patches[name]:
            sources.apply_patch(patch, self.work / name, 1, log)
        cache.remove(self._packages(name))

    def _run_step(self, step: Step) -> None:
        directory = self.work / step.directory
        cache.remove(directory / step.anew)
        directory.mkdir(parents=True, exist_ok=True)
        self._log(step.name).unlink(missing_ok=True)
        environment = {
            "LC_ALL": "C",
            "PATH": f"{self.prefix}/bin:/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "SOURCE_DATE_EPOCH": str(self.recipe.epoch),
        }
        for command in step.commands:
            what = f"toolchain step {step.name}"
            run_logged(["nice", *command], self._log(step.name), what, cwd=directory, env=environment, timeout_seconds=STEP_TIMEOUT_SECONDS)

    def _finish(self) -> None:
        """Removes unneeded files, tries the compiler on a small program, and frees disk space."""
        for pattern in LEFT_OUT:
            for path in self.prefix.glob(pattern):
                cache.remove(path)
        try_compiler(self.prefix, self.work / "trial", self._log("trial"))
        cache.remove(self.work)


def together(*tasks: Callable[[], None]) -> None:
    """Runs tasks at the same time. If one fails, the running commands of all are killed, and its error is raised."""
    with concurrent.futures.ThreadPoolExecutor(len(tasks)) as pool:
        running = [pool.submit(task) for task in tasks]
        try:
            for task in concurrent.futures.as_completed(running):
                task.result()
        except BaseException:
            # Repeated, because a task may be about to start its next command.
            while concurrent.futures.wait(running, KILL_INTERVAL_SECONDS).not_done:
                kill_running_commands()
            raise


def try_compiler(prefix: Path, scratch: Path, log: Path) -> None:
    """Compiles a few lines of C++23. Raises Failure on error."""
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "trial.cpp").write_text(TRIAL)
    compiler = str(prefix / "bin" / f"{TARGET}-g++")
    run_logged(
        [compiler, "-std=c++23", "-c", "trial.cpp", "-o", "trial.o"], log, "trying the cross compiler", cwd=scratch, timeout_seconds=120
    )
    cache.remove(scratch)


def _size_bytes(tree: Path) -> int:
    """Returns the disk usage of a tree. A resumed build counts the size of its work directory as free space."""
    total = 0
    for directory, _, names in os.walk(tree):
        for name in names:
            total += os.lstat(os.path.join(directory, name)).st_blocks * 512
    return total
