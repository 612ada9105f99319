# SPDX-License-Identifier: BSL-1.0
"""The plugin that models the CPUs (sim/machine), and QEMU's options for a machine with it.

cpu = cpu_model.load("e5-2690")
with Machine(image, cores=2, one_thread=True, cpu=cpu.qemu_cpu(), qemu_options=plugin.options(cpu, directory)) as machine:
    machine.wait_exit(60)
print(plugin.snapshots(directory)[-1]["package_j"])
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools import build, qemu, qemu_plugin
from tools.errors import Failure
from tools.model.cpu_model import CpuModel

SOURCES = build.REPOSITORY / "sim/machine"
CORES_MAX = 16
SNAPSHOTS = "snapshots.jsonl"


def library() -> Path:
    """The compiled plugin. Raises Failure if QEMU's version is not the one that it knows."""
    version = qemu.version_of(qemu.command())
    if version != qemu.TESTED:
        raise Failure(f"the model machine needs QEMU {qemu.TESTED}, not {version}", "unset NEAP_QEMU, and ./neap fetches it")
    own = sorted(path for path in SOURCES.glob("*.?pp") if not path.stem.endswith("_test"))
    # The C++ library is linked statically, because QEMU runs with the libraries of its own suite.
    # The debug information has no path of this machine.
    paths = ["-I", str(build.REPOSITORY), f"-ffile-prefix-map={build.REPOSITORY}=."]
    compiler = ["g++", "-std=c++23", "-g1", "-Wshadow", "-static-libstdc++", "-static-libgcc", *paths]
    return qemu_plugin.compiled("machine", [path for path in own if path.suffix == ".cpp"], own, compiler)


def options(
    cpu: CpuModel,
    directory: Path,
    *,
    link: Path | None = None,
    seed: int = 0,
    quantum_ns: int | None = None,
    stay: bool = False,
    lines: bool = False,
    trace: Path | None = None,
    stall: tuple[int, int] | None = None,
    interrupt_us: int | None = None,
    instructions_max: int | None = None,
    profile: Path | None = None,
    moved_lines: bool = True,
    hosts_pace: bool = False,
    made: Path | None = None,
) -> list[str]:
    """QEMU's options beside -accel and -cpu. The model's flat file and the snapshots are in `directory`.

    stall: mean distance and largest length, in us, of random times for which a core is held (sim/machine/stalls.hpp).
    interrupt_us: mean distance of the host's interruptions of QEMU, in us of its time, which MUST NOT change the run.
    instructions_max: QEMU ends with status 6 if all cores together have executed more.
    profile: the file for the window's instructions by address (sim/machine/profile.hpp); without `moved_lines` it has no moves of lines.
    hosts_pace: idle time of the one core passes as the host's does, so that clients on the host can use it. Two runs then differ.
    made: the compiled plugin, if not this checkout's."""
    flat = directory / f"{cpu.name}.model"
    flat.write_text(cpu.flat())
    words = [f"model={flat}", f"out={directory / SNAPSHOTS}", f"seed={seed}"]
    if link:
        words.append(f"link={link}")
    if quantum_ns:
        words.append(f"quantum_ns={quantum_ns}")
    if stay:
        words.append("stay=on")
    if lines:
        words.append("lines=on")
    if stall:
        words.append(f"stall={stall[0]}:{stall[1]}")
    if interrupt_us:
        words.append(f"interrupt_us={interrupt_us}")
    if instructions_max:
        words.append(f"instructions_max={instructions_max}")
    if profile:
        words.append(f"profile={profile}")
        if not moved_lines:
            words.append("moves=off")
    if trace:
        words.append(f"trace={trace}")
    if hosts_pace:
        words.append("pace=host")
    clock = ["-icount", f"shift=0,sleep={'on' if hosts_pace else 'off'}", "-rtc", "base=2026-01-01,clock=vm"]
    # RDRAND and the seed that QEMU gives to Linux would otherwise come from the host.
    randomness = ["-seed", str(seed)]
    return [*clock, *randomness, *qemu_plugin.option(made or library(), *words)]


def snapshots(directory: Path) -> list[dict[str, Any]]:
    """The model's snapshots so far, oldest first."""
    path = directory / SNAPSHOTS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
