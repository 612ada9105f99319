# SPDX-License-Identifier: BSL-1.0
"""The first half of `./neap bench load`: the cost of a request in the load generator and in other generators.

A generator that needs much CPU time for each request soon measures its own speed instead of the server's. So each generator loads stock
memcached as heavily as it can: a closed loop of one thread with 16 connections and values of 200 bytes. The figure is answered requests per
second of the generator's own CPU time (user and system, as the kernel reports at its exit). If the machine has two cores, server and client
have one each. The rounds alternate between the generators, so a slow minute affects all of them. The median of each generator's rounds is
shown. A generator that is not available is listed with the reason.
"""

import dataclasses
import json
import re
import shutil
import statistics
from collections.abc import Callable, Sequence

from tools import build, progress
from tools.bench import mutilate
from tools.bench.programs import LAST_CORE, measured, memcached, on_core
from tools.bench.rows import Row, aligned
from tools.debian import DebianProgram
from tools.errors import Failure

CONNECTIONS = 16
KEYS = 10_000
KEY_BYTES = 30
VALUE_BYTES = 200
SECONDS = 3
ROUNDS = 3
# Length of a run of memcslap, which ends after a number of requests, not after a time.
MEMCSLAP_REQUESTS = 5000
RATE_UNIT, CORES_UNIT, EACH_UNIT = "requests/s", "cores of the client", "requests for a CPU second of the client"


@dataclasses.dataclass(frozen=True)
class Client:
    """A generator's command line. The command `prepare`, if given, fills the store and is not measured. `count` reads the number of
    answered requests from the generator's output."""

    name: str
    argv: Callable[[], list[str]]
    words: Callable[[str], list[str]]
    count: Callable[[str], float]
    prepare: Callable[[str], list[str]] | None = None


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of one client: requests, wall-clock seconds and CPU seconds."""

    requests: float
    seconds: float
    cpu_seconds: float


def load() -> list[Row]:
    build.build_load()
    commands: dict[str, list[str] | Failure] = {}
    for client in CLIENTS:
        try:
            commands[client.name] = client.argv()
        except Failure as failure:
            commands[client.name] = failure
    rounds: dict[str, list[Round]] = {client.name: [] for client in CLIENTS}
    with progress.step(f"{ROUNDS} rounds of {len([words for words in commands.values() if isinstance(words, list)])} clients"):
        for _ in range(ROUNDS):
            for client in CLIENTS:
                words = commands[client.name]
                if isinstance(words, Failure):
                    continue
                try:
                    rounds[client.name].append(_round(client, words))
                except Failure as failure:
                    commands[client.name] = failure
    rows: list[Row] = []
    for client in CLIENTS:
        reason = commands[client.name]
        rows += _rows(client.name, reason.message if isinstance(reason, Failure) else None, rounds[client.name])
    return rows


def _rows(name: str, reason: str | None, rounds: Sequence[Round]) -> list[Row]:
    if reason is not None:
        return [Row(f"load.{name}", reason, None)]
    middle = sorted(rounds, key=lambda one: one.requests / one.cpu_seconds)[len(rounds) // 2]
    return [
        Row(f"load.{name}.rate", RATE_UNIT, statistics.median(one.requests / one.seconds for one in rounds)),
        Row(f"load.{name}.cores", CORES_UNIT, middle.cpu_seconds / middle.seconds),
        Row(f"load.{name}.each", EACH_UNIT, middle.requests / middle.cpu_seconds),
    ]


def side_by_side(rows: Sequence[Row]) -> str:
    values = {row.name: row.value for row in rows}
    cells = [("client", RATE_UNIT, CORES_UNIT, EACH_UNIT, "")]
    for row in rows:
        if row.value is None:
            cells.append((row.name.removeprefix("load."), "-", "-", "-", row.unit))
        elif row.name.endswith(".rate"):
            stem = row.name.removesuffix(".rate")
            cores, each = values[f"{stem}.cores"], values[f"{stem}.each"]
            cells.append((stem.removeprefix("load."), f"{row.value:,.0f}", f"{cores:.2f}", f"{each:,.0f}", ""))
    return aligned(cells)


def _round(client: Client, argv: Sequence[str]) -> Round:
    """Measures one round, on a server started for it. Raises Failure."""
    with memcached() as address:
        if client.prepare is not None:
            measured(client.name, [*argv, *client.prepare(address)], [])
        output, seconds, cpu_seconds = measured(client.name, [*argv, *client.words(address)], on_core(LAST_CORE))
    try:
        requests = client.count(output)
    except (ValueError, KeyError, IndexError, TypeError):
        raise Failure(f"{client.name} printed no count of requests", details=output.splitlines()[-10:]) from None
    if requests <= 0 or cpu_seconds <= 0:
        raise Failure(f"{client.name} had no request answered", details=output.splitlines()[-10:])
    return Round(requests, seconds, cpu_seconds)


def _neap(depth: int) -> Client:
    load = ["--closed", "--connections", str(CONNECTIONS), "--depth", str(depth), "--no-preload", "--seconds", str(SECONDS)]
    common = ["--keys", str(KEYS), "--warm-up", "0", "--quiet"]

    def count(output: str) -> float:
        (figures,) = json.loads(output[output.index("\n{\n") :])["runs"]
        return figures["loading"]["latency"]["count"]

    return Client(
        f"neap-load, depth {depth}",
        argv=lambda: [str(build.LOAD)],
        words=lambda address: [address, *load, *common, "--json", "-"],
        count=count,
        prepare=lambda address: [address, "--rate", "10", "--seconds", "0.1", *common],
    )


def _mutilate(depth: int, *options: str) -> Client:
    common = ["--records", str(KEYS), "--keysize", str(KEY_BYTES), "--valuesize", str(VALUE_BYTES)]
    load = ["--noload", "-c", str(CONNECTIONS), "-d", str(depth), "-t", str(SECONDS)]
    return Client(
        f"{' '.join(['mutilate', *options])}, depth {depth}",
        argv=mutilate.command,
        words=lambda address: ["-s", address, *load, *common, *options],
        count=lambda output: float(re.findall(r"^Total QPS = [\d.]+ \((\d+) / [\d.]+s\)", output, re.MULTILINE)[0]),
        prepare=lambda address: ["-s", address, "--loadonly", *common],
    )


def _memcaslap() -> Client:
    settings = f"key\n{KEY_BYTES} {KEY_BYTES} 1\nvalue\n{VALUE_BYTES} {VALUE_BYTES} 1\ncmd\n0 0\n1 1\n"

    def argv() -> list[str]:
        path = build.BUILD / "memcaslap.settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settings)
        return [*DebianProgram("libmemcached-tools", "memcaslap").argv, "-F", str(path)]

    return Client(
        "memcaslap (libmemcached)",
        argv,
        words=lambda address: ["-s", address, "-T", "1", "-c", str(CONNECTIONS), "-t", f"{SECONDS}s"],
        count=lambda output: sum(float(number) for number in re.findall(r"^cmd_[gs]et: (\d+)", output, re.MULTILINE)),
    )


def _memcslap() -> Client:
    load = ["--test=get", f"--concurrency={CONNECTIONS}", f"--execute-number={MEMCSLAP_REQUESTS}"]
    return Client(
        "memcslap (libmemcached), a thread a connection",
        argv=lambda: DebianProgram("libmemcached-tools", "memcslap").argv,
        words=lambda address: [f"--servers={address}", *load],
        count=lambda _output: float(CONNECTIONS * MEMCSLAP_REQUESTS),
    )


def _memtier(depth: int) -> Client:
    sizes = [f"--data-size={VALUE_BYTES}", f"--key-maximum={KEYS}", "--ratio=0:1", "--hide-histogram", f"--pipeline={depth}"]
    load = ["-t", "1", "-c", str(CONNECTIONS), f"--test-time={SECONDS}"]

    def argv() -> list[str]:
        if (program := shutil.which("memtier_benchmark")) is None:
            raise Failure("not on this machine, and Debian 12 has no package of it")
        return [program]

    return Client(
        f"memtier_benchmark, depth {depth}",
        argv,
        words=lambda address: ["--protocol=memcache_text", "-s", address.split(":")[0], "-p", address.split(":")[1], *load, *sizes],
        count=lambda output: float(re.findall(r"^Totals\s+([\d.]+)", output, re.MULTILINE)[0]) * SECONDS,
    )


def _unpackaged(name: str) -> Client:
    def argv() -> list[str]:
        raise Failure("not packaged by Debian, and its builds are not kept up")

    return Client(name, argv, lambda _address: [], lambda _output: 0.0)


CLIENTS = [
    *(make(depth) for depth in (1, 4) for make in (_neap, _mutilate, lambda depth: _mutilate(depth, "--blocking"))),
    _memcaslap(),
    _memcslap(),
    _memtier(4),
    _unpackaged("mcperf (twemperf)"),
]
