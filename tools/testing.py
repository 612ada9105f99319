# SPDX-License-Identifier: BSL-1.0
"""`./neap test`: layers of tests that can run separately, and one line of totals at the end.

A layer builds its requirements, runs its tests with their own tool (ctest, cargo, pytest), and reads the tool's result file. A skipped test
counts as failed, and so does a layer in which no test ran, so that no test is dropped silently. A failed test is not run again: a failure
that occurs only sometimes shows a defect of the product or of the test.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import time
import xml.etree.ElementTree as xml
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools import (
    boot_programs,
    build,
    card_fuzz,
    fuzz_soak,
    history_soak,
    kernel_soak,
    memcached_soak,
    network_soak,
    outside,
    packages,
    progress,
    pythons,
    qemu,
    run,
    start_soak,
    style,
    test262_soak,
    toolchain,
    tpcc_soak,
    web_soak,
)
from tools.errors import EXIT_FAILURE, Failure, UsageError
from tools.model import campaign
from tools.packetdrill import command as packetdrill
from tools.process import run_logged, tail
from tools.release import building

RESULTS = build.BUILD / "test-results"
SHOWN_FAILURES = 30
CTEST_SECONDS_PER_TEST = 300
SOAK_MINUTES = 60.0
VIRTIO_CORES = (1, 4)
SYSTEM_IMAGES = "hello memcached netpipe tpcc webserver bench_kernel bench_kernel_memory bench_observe".split()
# The folders with the tests in Python, for each layer that runs pytest. The host layer's tests start programs of the host build.
PYTHON_TESTS = {
    "host": ["apps", "tests/packetdrill"],
    "tools": ["tools", "drivers/ixgbe", "kernel"],
    "target": ["tests/target", "tests/model"],
    "system": ["tests/system"],
}
# pytest has as many workers as the host has cores, or more. Tests of one file run on one worker, because they share a machine. Files start
# in the order of their names, or in the order that tests/conftest.py gives.
ONE_FILE_A_WORKER = ("--dist=loadfile", "--no-loadscope-reorder")
SIDE_BY_SIDE = (f"--numprocesses={os.cpu_count() or 1}", *ONE_FILE_A_WORKER)
# For tests whose machines and clients wait for a part of their time: three workers for two cores.
MORE_SIDE_BY_SIDE = (f"--numprocesses={(os.cpu_count() or 1) * 3 // 2}", *ONE_FILE_A_WORKER)


@dataclasses.dataclass
class Outcome:
    """A layer's result: the number of passed tests, and a line for each failed test."""

    passed: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.passed += other.passed
        self.failures += other.failures


def test(names: Sequence[str], card: str | None = None) -> int:
    """Runs layers (default: all) one after the other. Prints `N passed, N failed` as the last line. Returns 1 if a test failed. `card`:
    "virtio" runs the system tests that name no 82599 on that card instead, with one core and with four."""
    if card == "virtio":
        if list(names) != ["system"]:
            raise UsageError("--card virtio is for the layer system", "./neap test system --card virtio")
        layers: Mapping[str, Callable[[], Outcome]] = {
            f"virtio-{cores}": functools.partial(_system_on_virtio, cores) for cores in VIRTIO_CORES
        }
        return _test(layers)
    folders = {name: folder for name in names if name not in LAYERS and (folder := outside.folder(name))}
    for name in names:
        if name not in LAYERS and name not in folders:
            raise UsageError(f"there is no test layer '{name}'", f"layers: {' '.join(LAYERS)}; or the folder of an application elsewhere")
    return _test({name: LAYERS.get(name) or functools.partial(_outside, folders[name]) for name in names or LAYERS})


def _test(layers: Mapping[str, Callable[[], Outcome]]) -> int:
    total = Outcome()
    rows = []
    for name, layer in layers.items():
        start = time.monotonic()
        outcome = _run_layer(name, layer)
        rows.append(f"{name:8} {outcome.passed:5} passed, {len(outcome.failures):3} failed  {progress.duration(time.monotonic() - start)}")
        for line in outcome.failures[:SHOWN_FAILURES]:
            print(f"FAILED {name}: {line}", flush=True)
        if len(outcome.failures) > SHOWN_FAILURES:
            print(f"FAILED {name}: and {len(outcome.failures) - SHOWN_FAILURES} more", flush=True)
        total.add(outcome)
    print("\n".join(rows))
    print(f"{total.passed} passed, {len(total.failures)} failed", flush=True)
    return EXIT_FAILURE if total.failures or not total.passed else 0


def soak(
    names: Sequence[str],
    minutes: float | None = None,
    seeds: int | None = None,
    first_seed: int | None = None,
    cores: int | None = None,
    jobs: int | None = None,
    faults: Sequence[str] = (),
    starts: int | None = None,
    busy: int | None = None,
    count: int | None = None,
    folder: str | None = None,
    every: int | None = None,
    parts: Sequence[str] = (),
) -> int:
    """Runs layers (default: all except style) repeatedly until the time is over: `minutes`, or SOAK_MINUTES. Stops after the first round
    that fails. Thirteen names are no layers, and each MUST be the only name: `card` runs the soft card's fuzzers, `driver` random traffic,
    settings and faults, `kernel` the kernel's stress images, `fuzz` all other fuzzers, `histories` concurrent clients of memcached,
    `network` bad links, floods, crowds (tools/network_soak.py has its `parts`), `suite` memcached's own tests, `crowd` and `protocols` many
    clients and random bytes of memcached (tools/memcached_soak.py), `model` seeds on the model machine (tools/model/campaign.py has its
    further arguments), `starts` starts of many cores on a busy host (tools/start_soak.py), `test262` the conformance suite of JavaScript
    (tools/test262_soak.py), `tpcc` transactions whose serial order is replayed (tools/tpcc_soak.py), `web` the web server under many
    clients, failing scripts and damaged bytes (tools/web_soak.py). Fuzzers among the tests run for NEAP_SOAK_SECONDS, which this
    function sets in the environment."""
    of_model = {"seeds": seeds, "first_seed": first_seed, "cores": cores, "jobs": jobs, "faults": faults or None}
    of_starts = {"starts": starts, "cores": cores, "busy": busy}
    of_protocols = {"count": count}
    of_test262 = {"folder": folder, "every": every}
    given = {name: value for name, value in {**of_model, **of_starts, **of_protocols, **of_test262}.items() if value is not None}
    for name, options, runner in (
        ("model", of_model, campaign.soak),
        ("starts", of_starts, start_soak.soak),
        ("crowd", {"cores": cores}, memcached_soak.soak_crowd),
        ("protocols", of_protocols, memcached_soak.soak_protocols),
        ("test262", of_test262, test262_soak.soak),
    ):
        if list(names) != [name]:
            continue
        if foreign := [option for option in given if option not in options]:
            raise UsageError(f"{_soak_option(foreign[0])} does not belong to soak {name}", "./neap soak --help lists the options")
        return runner(**given)
    if list(names) == ["web"] and not set(given) - {"count"} and not parts:
        return web_soak.soak(minutes, count)
    if given:
        first = next(iter(given))
        name = {"starts": "starts", "busy": "starts", "count": "protocols", "folder": "test262", "every": "test262"}.get(first, "model")
        raise UsageError(f"{_soak_option(first)} belongs to soak {name}", f"./neap soak {name}")
    if parts and list(names) != ["network"]:
        raise UsageError("--part belongs to soak network", "./neap soak network")
    minutes = SOAK_MINUTES if minutes is None else minutes
    if minutes <= 0:
        raise UsageError(f"--minutes takes more than 0, not {minutes:g}")
    alone = {
        "card": card_fuzz.soak,
        "driver": _soak_driver,
        "kernel": kernel_soak.soak,
        "fuzz": fuzz_soak.soak,
        "histories": history_soak.soak,
        "network": lambda minutes: network_soak.soak(minutes, parts),
        "suite": _soak_suite,
        "tpcc": tpcc_soak.soak,
    }
    if len(names) == 1 and names[0] in alone:
        return alone[names[0]](minutes)
    layers = list(names) or [name for name in LAYERS if name != "style"]
    deadline = time.monotonic() + 60 * minutes
    os.environ["NEAP_SOAK_SECONDS"] = str(int(60 * minutes / (4 * len(layers))))
    rounds = 0
    while rounds == 0 or time.monotonic() < deadline:
        status = test(layers)
        rounds += 1
        left = progress.duration(max(0, deadline - time.monotonic()))
        progress.say(f"neap: soak: round {rounds} {'failed' if status else 'passed'}, {left} left")
        if status:
            return status
    return 0


def _soak_option(name: str) -> str:
    return {"first_seed": "--first-seed", "faults": "--fault", "count": "--bytes"}.get(name, f"--{name}")


def _soak_driver(minutes: float) -> int:
    _require_images()
    build.build("image-debug", ["ixgbe_echo.elf"])
    build.build_soft_card()
    qemu.command()
    os.environ["NEAP_SOAK_SECONDS"] = str(int(60 * minutes))
    os.environ.setdefault("NEAP_SOAK_SEED", str(int.from_bytes(os.urandom(4), "little")))
    verdict = _fresh_result("soak-driver").with_suffix(".txt")
    verdict.unlink(missing_ok=True)
    os.environ["NEAP_SOAK_VERDICT"] = str(verdict)
    timeout_seconds = 60 * minutes + 500
    options = ("-o", f"timeout={timeout_seconds:.0f}")
    outcome = _pytest("soak-driver", ["tests/target/ixgbe/ixgbe_soak.py"], timeout_seconds + 100, *options)
    result_text = verdict.read_text().strip() if verdict.is_file() else "\n".join(outcome.failures)
    progress.say(f"neap: soak: driver, seed {os.environ['NEAP_SOAK_SEED']}: {'failed' if outcome.failures else 'passed'}: {result_text}")
    return EXIT_FAILURE if outcome.failures else 0


def _soak_suite(minutes: float) -> int:
    """Runs all files of memcached's suite that apply, at least once, and again until the time is over."""
    _require_images("system-tests")
    build.build("image", ["memcached.elf"])
    build.build_soft_card()
    qemu.command()
    deadline = time.monotonic() + 60 * minutes
    rounds = passed = 0
    while rounds == 0 or time.monotonic() < deadline:
        places = [f"tests/system/memcached_suite_{part}.py" for part in ("test", "soak")]
        outcome = _pytest("soak-suite", places, 3600, "-o", "timeout=1800")
        rounds, passed = rounds + 1, passed + outcome.passed
        for line in outcome.failures:
            print(f"FAILED suite: {line}", flush=True)
        if outcome.failures or not outcome.passed:
            return EXIT_FAILURE
    print(f"{passed} runs of files of memcached's suite in {rounds} rounds", flush=True)
    return 0


def _run_layer(name: str, layer: Callable[[], Outcome]) -> Outcome:
    progress.say(f"neap: test layer {name}")
    try:
        outcome = layer()
    except Failure as failure:
        for line in failure.details:
            print(f"    {line}", flush=True)
        return Outcome(failures=[str(failure)])
    if not outcome.passed and not outcome.failures:
        outcome.failures.append("no test ran")
    return outcome


def _host() -> Outcome:
    packages.require("host-tests", "sources", "python-tests")
    outcome = Outcome()
    for preset in build.HOST_PRESETS:
        directory = build.build(preset)
        result = _fresh_result(preset)
        argv = ["ctest", "--test-dir", str(directory), "--no-tests=error", "--output-on-failure", "--output-junit", str(result)]
        argv += ["--parallel", str(os.cpu_count() or 1), "--timeout", str(CTEST_SECONDS_PER_TEST)]
        outcome.add(_run_and_read(argv, f"test-{preset}", result, timeout_seconds=1800))
    packetdrill.build_library()
    outcome.add(_pytest("host-programs", PYTHON_TESTS["host"], 900))
    return outcome


def _sim() -> Outcome:
    packages.require("card", "rust", "sim-tests")
    outcomes: dict[str, Outcome] = {}

    def tests() -> None:
        outcomes["tests"] = _cargo(build.SOFT_CARD_CRATE, "test-sim")
        outcomes["tests"].add(_cargo(build.WORLD_CRATE, "test-world"))

    def fuzz() -> None:
        try:
            results = card_fuzz.run(float(os.environ.get("NEAP_SOAK_SECONDS") or build.FUZZ_SECONDS))
        except Failure as error:
            outcomes["fuzz"] = Outcome(failures=[str(error), *error.details[-5:]])
        else:
            for result in results:
                progress.say(f"neap: {result}")
            outcomes["fuzz"] = Outcome(len(results))

    # Fuzzers and tests run in parallel, because the fuzzers use one core, and most tests of the card wait for sockets.
    run.in_parallel([tests, fuzz])
    outcomes["tests"].add(outcomes["fuzz"])
    return outcomes["tests"]


def _load() -> Outcome:
    packages.require("card", "rust")
    return _cargo(build.LOAD_CRATE, "test-load")


def _cargo(crate: build.Crate, log_name: str) -> Outcome:
    log = build.log_path(log_name)
    log.unlink(missing_ok=True)
    failure = None
    try:
        build.cargo_run(crate, ["test", "--locked", "--no-fail-fast"], f"testing {crate.title}", log_name)
    except Failure as error:
        if not log.is_file():
            raise
        failure = error
    outcome = read_cargo(log.read_text(errors="replace"))
    if failure and not outcome.failures:
        raise failure
    if outcome.failures:
        outcome.failures[-1] += f" (full log: {log})"
    return outcome


def _tools() -> Outcome:
    _require_images("tools-tests", "browser-tests", "model-tests", "release", "rust")
    toolchain.require()
    for crate in building.CRATES:
        building.fetch_crates(crate)
    qemu.command()
    boot_programs.require()
    return _pytest("tools", PYTHON_TESTS["tools"], 1800, *SIDE_BY_SIDE)


def _target() -> Outcome:
    _require_images("gdb")
    build.build("image-debug")
    build.build("image", ["memcached.elf", "netpipe.elf", "webserver.elf", "bench_known_count.elf"])
    build.build_soft_card()
    build.build_world()
    qemu.command()
    return _pytest("target", PYTHON_TESTS["target"], 1800, *SIDE_BY_SIDE)


def _system() -> Outcome:
    _require_images("system-tests", "browser-tests")
    build.build("image", [f"{name}.elf" for name in SYSTEM_IMAGES])
    build.build_soft_card()
    build.build_load()
    qemu.command()
    boot_programs.require()
    return _pytest("system", PYTHON_TESTS["system"], 3600, *MORE_SIDE_BY_SIDE)


def _system_on_virtio(cores: int) -> Outcome:
    _require_images("system-tests", "browser-tests")
    build.build("image", [f"{name}.elf" for name in SYSTEM_IMAGES])
    options = ("--card=virtio", f"--server-cores={cores}")
    return _pytest(f"system-virtio-{cores}", PYTHON_TESTS["system"], 3600, *options, *MORE_SIDE_BY_SIDE)


def _style() -> Outcome:
    _require_images("style", "rustfmt", "host-tests")
    outcome = Outcome()
    log = build.log_path("test-style")
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as out:
        for name, complaints in style.check():
            if not complaints:
                outcome.passed += 1
                continue
            out.writelines(f"{name}: {complaint}\n" for complaint in complaints)
            more = f" and {len(complaints) - 1} more, see {log}" if len(complaints) > 1 else ""
            outcome.failures.append(f"{name}: {complaints[0]}{more}")
    return outcome


def _outside(folder: Path) -> Outcome:
    _require_images()
    qemu.command()
    build.build_soft_card()
    return Outcome(passed=outside.test(folder))


LAYERS: dict[str, Callable[[], Outcome]] = {
    "host": _host,
    "sim": _sim,
    "load": _load,
    "tools": _tools,
    "target": _target,
    "system": _system,
    "style": _style,
}


def _require_images(*groups: str) -> None:
    chain = ["toolchain"] if toolchain.must_be_built() else []
    packages.require("build", "card", "rust", "python-tests", *chain, *groups)


def _pytest(name: str, places: Sequence[str], timeout_seconds: float, *options: str) -> Outcome:
    there = [place for place in places if (build.REPOSITORY / place).exists()]
    result = _fresh_result(name)
    argv = [str(pythons.environment() / "python"), "-m", "pytest", "-p", "no:cacheprovider", f"--junit-xml={result}", *options, *there]
    return _run_and_read(argv, f"test-{name}", result, timeout_seconds=timeout_seconds)


def _fresh_result(name: str) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.xml"
    path.unlink(missing_ok=True)
    return path


def _run_and_read(argv: list[str], log_name: str, result: Path, timeout_seconds: float) -> Outcome:
    """Runs a test tool that writes JUnit XML. The tool's exit status counts only if the file lists no failure."""
    log = build.log_path(log_name)
    log.unlink(missing_ok=True)
    failure = None
    try:
        run_logged(argv, log, log_name, cwd=build.REPOSITORY, timeout_seconds=timeout_seconds)
    except Failure as error:
        failure = error
    if not result.is_file():
        raise failure or Failure(f"{log_name} wrote no result", f"full log: {log}", tail(log))
    outcome = read_junit(result.read_text(errors="replace"))
    if failure and not outcome.failures:
        raise failure
    if outcome.failures:
        for line in tail(log, 60, 65536):
            print(f"    {line}", flush=True)
        outcome.failures[-1] += f" (full log: {log})"
    return outcome


def read_junit(text: str) -> Outcome:
    """Counts the test cases of a JUnit file from ctest or pytest."""
    outcome = Outcome()
    try:
        cases = list(xml.fromstring(text).iter("testcase"))
    except xml.ParseError as error:
        raise Failure(f"the test tool's result cannot be read: {error}") from None
    for case in cases:
        name = case.get("name", "?")
        if case.get("classname") not in (None, "", name):
            name = f"{case.get('classname')}.{name}"
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        skip = case.find("skipped")
        if problem is not None:
            message = (problem.get("message") or "").strip().splitlines()
            outcome.failures.append(f"{name}: {message[0][:200]}" if message else name)
        elif skip is not None or case.get("status") in ("notrun", "disabled"):
            outcome.failures.append(f"{name}: unexpected skip{': ' + skip.get('message', '') if skip is not None else ''}")
        else:
            outcome.passed += 1
    return outcome


def read_cargo(text: str) -> Outcome:
    outcome = Outcome()
    for name, result in re.findall(r"^test (.+?) \.\.\. (\w+)", text, re.MULTILINE):
        if result == "ok":
            outcome.passed += 1
        elif result == "ignored":
            outcome.failures.append(f"{name}: unexpected skip (ignored)")
        else:
            outcome.failures.append(name)
    # A test that prints while it runs can split the line of another test, but not the line of the totals.
    sums = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", text, re.MULTILINE)
    outcome.passed = sum(int(row[0]) for row in sums)
    counted = sum(int(row[1]) + int(row[2]) for row in sums)
    outcome.failures += ["a test whose name was lost in the output"] * (counted - len(outcome.failures))
    return outcome
