# SPDX-License-Identifier: BSL-1.0
"""The file of a comparison: arms, workloads, numbers of cores and rounds (docs/compare.md).

A comparison is a cross product, so a mistake in the file can cost half an hour. All members are checked before the first run, and each
error names the member. Two plans with the same digest ask for the same runs.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import cache
from tools.errors import Failure, UsageError
from tools.model import cpu_model, linux
from tools.toml_tables import TEXT_CHARACTERS_MAX, is_number, list_of, made, parse, read_text, require

DEFAULT = Path(__file__).with_name("workloads.toml")
SYSTEMS = ("neap", "linux", "linux-13")
ARMS_MAX, WORKLOADS_MAX, ROUNDS_MAX, CORES_MAX = 6, 200, 100, 16
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,39}")
# The driver's budget of an event; more frames at once would be several events.
FRAMES_A_CORE_MAX = 64


@dataclasses.dataclass(frozen=True)
class Arm:
    """One column of the comparison. words: of Neap's command line, or of Linux (tools/model/linux.py)."""

    name: str
    system: str
    about: str = ""
    words: tuple[str, ...] = ()

    @property
    def is_linux(self) -> bool:
        return self.system != "neap"

    @property
    def folder(self) -> str:
        return self.name.replace(" ", "-")


@dataclasses.dataclass(frozen=True)
class Workload:
    """One row. rate: requests/s for each core that has a connection; 0: connections are open and idle.
    requests: measured ones, on all cores together; the window lasts so long that as many are offered. window_ms: the window, in place
    of `requests`. arrivals: `bursts`: a request for each place in flight at one moment, with equal gaps; or `poisson`."""

    name: str
    about: str = ""
    mix: str = "fixed"
    connections: int = 16
    depth: int = 1
    rate: float = 25_000.0
    requests: int = 4000
    window_ms: float | None = None
    warm_up_ms: float = 50.0
    keys: int = 100
    key_bytes: int = 16
    value_bytes: int = 100
    update: float = 0.0
    protocol: str = "text"
    arrivals: str = "bursts"

    def burst(self, cores: int) -> int:
        return min(self.connections, FRAMES_A_CORE_MAX * cores) * self.depth

    @property
    def is_idle(self) -> bool:
        return self.rate == 0

    def rate_of(self, cores: int) -> float:
        return self.rate * min(cores, self.connections)

    def window_ms_of(self, cores: int) -> float:
        return self.window_ms if self.window_ms is not None else 1e3 * self.requests / self.rate_of(cores)


@dataclasses.dataclass(frozen=True)
class PingPong:
    """Rows of NetPIPE between two machines of the same arm, one for each size in bytes. repeats: round trips of a trial."""

    name: str
    about: str = ""
    sizes: tuple[int, ...] = (64, 8192, 65536)
    repeats: int = 200
    cores: tuple[int, ...] = (1,)

    def rows(self) -> list[str]:
        return [f"{self.name}.{size}" for size in self.sizes]


@dataclasses.dataclass(frozen=True)
class Log:
    """One run of each arm in which the log is on."""

    workload: str
    cores: int = 1
    window_ms: float = 200.0


@dataclasses.dataclass(frozen=True)
class Plan:
    title: str
    model: str
    cores: tuple[int, ...]
    rounds: int
    seed: int
    arms: tuple[Arm, ...]
    workloads: tuple[Workload, ...]
    ping_pong: tuple[PingPong, ...]
    log: Log | None

    @property
    def digest(self) -> str:
        return cache.digest(json.dumps(dataclasses.asdict(self), sort_keys=True))

    def narrowed(self, only: Sequence[str], rounds: int | None, cores: Sequence[int] | None) -> Plan:
        """The plan with the rows that match a pattern (fnmatch), and with other rounds and cores. Raises UsageError if no row is left."""
        workloads, ping_pong = self.workloads, self.ping_pong
        if only:
            workloads = tuple(one for one in workloads if _matches(one.name, only))
            found = ((one, tuple(size for size in one.sizes if _matches(f"{one.name}.{size}", only))) for one in ping_pong)
            ping_pong = tuple(dataclasses.replace(one, sizes=sizes) for one, sizes in found if sizes)
            if not workloads and not ping_pong:
                names = [one.name for one in self.workloads] + [row for one in self.ping_pong for row in one.rows()]
                raise UsageError(f"--only: no row is named {' or '.join(only)}", f"rows: {' '.join(names)}")
        if rounds is not None and not 1 <= rounds <= ROUNDS_MAX:
            raise UsageError(f"--rounds takes 1 to {ROUNDS_MAX}, not {rounds}")
        if bad := [number for number in cores or () if not 1 <= number <= CORES_MAX]:
            raise UsageError(f"--cores takes 1 to {CORES_MAX}, not {bad[0]}")
        kept = tuple(dict.fromkeys(cores)) if cores else self.cores
        ping_pong = tuple(dataclasses.replace(one, cores=tuple(n for n in one.cores if n in kept)) for one in ping_pong)
        log = self.log if self.log and any(one.name == self.log.workload for one in workloads) else None
        return dataclasses.replace(
            self, cores=kept, rounds=rounds or self.rounds, workloads=workloads, ping_pong=tuple(p for p in ping_pong if p.cores), log=log
        )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def read(path: Path) -> Plan:
    """Raises Failure or UsageError that names the file and the member."""
    try:
        table = parse(read_text(path))
    except (OSError, ValueError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise Failure(f"{path}: {error.strerror if isinstance(error, OSError) else error}", "docs/compare.md has the members") from None
    try:
        return _plan(table)
    except ValueError as error:
        raise UsageError(f"{path}: {error}", "docs/compare.md has the members") from None


def _plan(table: Mapping[str, Any]) -> Plan:
    known = {"title", "model", "cores", "rounds", "seed", "arms", "workloads", "ping_pong", "log"}
    if unknown := sorted(set(table) - known):
        raise ValueError(f"there is no member '{unknown[0]}'; the file's members are {', '.join(sorted(known))}")
    arms = tuple(made(Arm, each, "arms", at) for at, each in enumerate(list_of(table, "arms", ARMS_MAX)))
    workloads = tuple(made(Workload, each, "workloads", at) for at, each in enumerate(list_of(table, "workloads", WORKLOADS_MAX)))
    ping_pong = tuple(made(PingPong, each, "ping_pong", at) for at, each in enumerate(list_of(table, "ping_pong", WORKLOADS_MAX)))
    log = made(Log, table["log"], "log") if "log" in table else None
    cores = table.get("cores", [1])
    require(isinstance(cores, list) and cores and all(is_number(n, 1, CORES_MAX) for n in cores), f"cores is a list of 1 to {CORES_MAX}")
    rounds, seed = table.get("rounds", 3), table.get("seed", 1)
    require(is_number(rounds, 1, ROUNDS_MAX), f"rounds is a number from 1 to {ROUNDS_MAX}")
    require(is_number(seed, 0, (1 << 32) - 1), "seed is a number from 0 to 2^32 - 1")
    model = table.get("model", "e5-2690")
    require(model in cpu_model.names(), f"model is one of {', '.join(cpu_model.names())}")
    title = table.get("title", "a comparison")
    require(isinstance(title, str) and len(title) <= TEXT_CHARACTERS_MAX, f"title is a text of at most {TEXT_CHARACTERS_MAX} characters")
    plan = Plan(title, model, tuple(dict.fromkeys(cores)), rounds, seed, arms, workloads, ping_pong, log)
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    require(len(plan.arms) >= 1, "there is no arm; write [[arms]]")
    require(bool(plan.workloads or plan.ping_pong), "there is no workload; write [[workloads]]")
    names = [one.name for one in plan.workloads] + [row for one in plan.ping_pong for row in one.rows()]
    for what, given in (("arms", [arm.name for arm in plan.arms]), ("rows", names)):
        for name in given:
            require(NAME.fullmatch(name) is not None, f"'{name}' is no name: letters, digits, spaces and _ . - only, at most 40")
            require(given.count(name) == 1, f"two {what} are named '{name}'")
    for arm in plan.arms:
        require(arm.system in SYSTEMS, f"{arm.name}: system is one of {', '.join(SYSTEMS)}, not '{arm.system}'")
        if arm.is_linux:
            try:
                linux.check(arm.words, cpu_model.load(plan.model))
            except UsageError as error:
                raise ValueError(f"{arm.name}: {error.message}") from None
        require(not any(word.startswith("ip=") for word in arm.words), f"{arm.name}: ip= is the comparison's own word")
    for one in plan.workloads:
        check_workload(one, plan.cores)
    if plan.log:
        require(plan.log.workload in [one.name for one in plan.workloads], f"log: there is no workload '{plan.log.workload}'")
        require(1 <= plan.log.cores <= CORES_MAX, f"log: cores is 1 to {CORES_MAX}")


def check_workload(one: Workload, cores: Sequence[int], *path: str | int) -> None:
    """Raises Mistake for a workload that cannot run. `path`: of its table."""
    require(one.mix in ("fixed", "etc", "usr"), f"{one.name}: mix is fixed, etc or usr, not '{one.mix}'", *path, "mix")
    require(
        one.protocol in ("text", "meta", "binary"), f"{one.name}: protocol is text, meta or binary, not '{one.protocol}'", *path, "protocol"
    )
    require(one.arrivals in ("bursts", "poisson"), f"{one.name}: arrivals is bursts or poisson, not '{one.arrivals}'", *path, "arrivals")
    require(1 <= one.connections <= 4096, f"{one.name}: connections is 1 to 4096, not {one.connections}", *path, "connections")
    require(1 <= one.depth <= 64, f"{one.name}: depth is 1 to 64, not {one.depth}", *path, "depth")
    require(one.update <= 1, f"{one.name}: update is a share from 0 to 1, not {one.update}", *path, "update")
    require(not one.is_idle or one.window_ms is not None, f"{one.name}: with rate = 0 the member window_ms is needed", *path, "rate")
    require(one.is_idle or one.requests >= 1, f"{one.name}: requests is 1 or more", *path, "requests")
    for number in cores:
        is_short = 0 < one.window_ms_of(number) <= 60_000
        require(is_short, f"{one.name}: the window is longer than a minute; fewer requests, or a higher rate", *path, "requests")
