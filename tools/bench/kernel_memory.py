# SPDX-License-Identifier: BSL-1.0
"""The memory part of `./neap bench kernel`: instructions for malloc and free in a release image."""

from tools.bench import instructions
from tools.bench.rows import Row

# Regions of bench/kernel_memory.cpp.
PAIR_64, PAIR_4096, MALLOC_64, FREE_64, REMOTE_FREE = 2, 3, 4, 5, 6


def rows() -> list[Row]:
    """Means over 10,000 calls. They include allocating and freeing slabs."""
    counts = instructions.run_image("bench_kernel_memory", cores=2)
    instructions.require_exact(counts)
    unit = "instructions, mean"
    return [
        Row("memory.malloc_free_64", unit, counts.regions[PAIR_64].mean, 60),
        Row("memory.malloc_free_4096", unit, counts.regions[PAIR_4096].mean, 120),
        Row("memory.malloc_64", unit, counts.regions[MALLOC_64].mean),
        Row("memory.free_64", unit, counts.regions[FREE_64].mean),
        Row("memory.remote_free_64", unit, counts.regions[REMOTE_FREE].mean),
    ]
