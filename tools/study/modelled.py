# SPDX-License-Identifier: BSL-1.0
"""Runs of a study on the model machine, and their figures as members of a row (schema.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools import build, cache, qemu
from tools.bench import modelled
from tools.model import experiment, linux, plugin, results
from tools.study.plan import COMMON

# Memory of a modelled machine: up to this number of cores, and above.
SMALL_CORES, SMALL, LARGE = 4, "512M", "1G"
PERCENTILES = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
STATES = ("c1", "c1e", "c3", "c6", "c7")


def prepare(systems: Sequence[str]) -> dict[str, dict[str, str]]:
    """Builds what the systems boot. Returns hashes of all that takes part in a run, by system, and of all systems under COMMON."""
    modelled.prepare(*(["memcached"] if "neap" in systems else []))
    found = {
        COMMON: {
            "QEMU": qemu.version_of(qemu.command()),
            "neap-world": cache.file_sha256(build.WORLD),
            "plugin": cache.file_sha256(plugin.library()),
        }
    }
    for system in systems:
        booted = system_of(system)
        found[system] = {f"{system} image": cache.file_sha256(booted.initramfs or booted.kernel)}
        if booted.initramfs:
            found[system][f"{system} kernel"] = cache.file_sha256(booted.kernel)
    return found


def system_of(name: str, *, with_trace: bool = False) -> experiment.System:
    if name == "neap":
        return experiment.System(build.image("memcached", "image"))
    return experiment.System(*linux.image(name == "linux-13", with_trace=with_trace))


def run(order: Mapping[str, Any], out: Path) -> list[dict[str, Any]]:
    """Runs a unit (plan.order_of). Returns for each load `figures` and `histogram`, and `log`: the folder of its log or None. `out`: an
    empty folder for the files of the run. Raises Failure."""
    loads = [experiment.Load(**{**each, "settings": tuple(each["settings"])}) for each in order["loads"]]
    is_linux = order["system"] != "neap"
    is_logged = any(load.log for load in loads)
    wanted = experiment.Experiment(
        order["model"],
        cores=order["cores"],
        memory=SMALL if order["cores"] <= SMALL_CORES else LARGE,
        seed=order["seed"],
        arguments=[*order["words"], *(["trace=on"] if is_linux and is_logged else [])],
        world_options=["--network", f"delay_ns={round(order['cable_us'] * 1000)}"] if order["cable_us"] else [],
    )
    system = system_of(order["system"], with_trace=is_linux and is_logged)
    found = experiment.run_sequence(wanted, loads, system, out)
    return [
        {
            "figures": {**figures(result), "log_requests": requests_of(out / experiment.sequence_log(number, load)) if load.log else None},
            "histogram": [[latency_ns / 1e3, count] for latency_ns, count in result.histogram],
            "log": str(out / experiment.sequence_log(number, load)) if load.log else None,
        }
        for number, (load, result) in enumerate(zip(loads, found, strict=True))
    ]


def requests_of(log: Path) -> int | None:
    """Returns the requests that the application counted in a log."""
    from tools.log import decode, summary

    return summary.summarise(decode.load([str(log)]))["total"]["requests"]


def figures(result: results.Result) -> dict[str, Any]:
    """Returns the members of a row. `scheduled` is for the checks only: requests of the window, by the load's schedule."""
    world, cores = result.world, result.cores
    seconds = result.window_ns / 1e9
    core_ns = result.window_ns * len(cores)
    awake_ns = sum(core.c0_ns for core in cores)
    frames = result.frames_in_window
    has_requests = result.answered > 0
    latency = {f"{name}_us": world["latency_ns"][name] / 1e3 if has_requests else None for name in PERCENTILES}
    asleep: dict[str, float] = dict.fromkeys(STATES, 0.0)
    for core in cores:
        for name, spent_ns in core.residency_ns.items():
            asleep[name.lower()] = asleep.get(name.lower(), 0.0) + spent_ns / core_ns
    return {
        "scheduled": world["offered"],
        "rate_reached": world["achieved_rate"],
        "requests": result.answered,
        "window_s": seconds,
        "failed_requests": world["failed"],
        "lost_frames": world["lost_frames"],
        **latency,
        "energy_j": result.package_j,
        "energy_uj": result.package_j * 1e6 / result.answered if has_requests else None,
        "power_w": result.watts,
        "instructions": result.instructions,
        "cycles": sum(core.cycles for core in cores),
        "interrupts": world["interrupts"],
        "wake_ups": sum(core.wakeups for core in cores),
        "frames_in": frames["to_card"],
        "frames_out": frames["from_card"],
        "bytes_in": frames["bytes_to_card"],
        "bytes_out": frames["bytes_from_card"],
        "c0": awake_ns / core_ns,
        **{name: share for name, share in asleep.items() if name in STATES},
        "mhz": 1e3 * sum(core.cycles for core in cores) / awake_ns if awake_ns else None,
    }
