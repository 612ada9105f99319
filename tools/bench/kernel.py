# SPDX-License-Identifier: BSL-1.0
"""`./neap bench kernel`: the cost of the kernel's steps in guest instructions (bench/kernel.cpp, a release image, two cores)."""

import dataclasses

from tools.bench import kernel_peers
from tools.bench.instructions import require_exact, run_image
from tools.bench.rows import Row


@dataclasses.dataclass(frozen=True)
class Step:
    """One step. `region`: its number in bench/kernel.cpp. `less`: the region to subtract, which does the same work without the kernel."""

    name: str
    region: int
    target: float | None = None
    less: int | None = None


STEPS = (
    Step("kernel.spawn_and_run", 2, 60),
    Step("kernel.remote_spawn.sender", 3, 150),
    Step("kernel.remote_spawn.receiver", 4, 150),
    Step("kernel.timer_add_cancel", 5, 80),
    Step("kernel.timer_push_back", 6),
    Step("kernel.ebb_call", 7, 4, less=8),
    Step("kernel.rcu_read", 9, 1, less=10),
    Step("kernel.await_ready", 11),
    Step("kernel.await_task", 12),
    Step("kernel.interrupt_to_handler", 13, 80),
)


# Regions of bench/kernel_memory.cpp, with the targets of their means.
MEMORY = {
    "memory.malloc_free_64": (2, 60),
    "memory.malloc_free_4096": (3, 120),
    "memory.malloc_64": (4, None),
    "memory.free_64": (5, None),
    "memory.remote_free_64": (6, None),
}


def memory() -> list[Row]:
    """Returns means over 10,000 calls. They include the cost of allocating and freeing slabs."""
    counts = run_image("bench_kernel_memory", cores=2)
    require_exact(counts)
    return [Row(name, "instructions, mean", counts.regions[region].mean, target) for name, (region, target) in MEMORY.items()]


def rows() -> list[Row]:
    """Returns mean, median and maximum of at least 9,000 runs. The maximum shows the cost of a fresh page or of a full batch."""
    counts = run_image("bench_kernel", cores=2)
    require_exact(counts)
    found = []
    for step in STEPS:
        off = counts.regions[step.less].mean if step.less is not None else 0.0
        found += counts.regions[step.region].rows(step.name, step.target, off)
    return kernel_peers.beside(found + memory())
