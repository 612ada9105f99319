# SPDX-License-Identifier: BSL-1.0
"""`./neap run --trace CORE`: writes the last functions that a core entered to a text file.

A plugin of QEMU's emulated CPU (tools/debugger/function_trace.c) writes entries into a ring of fixed size while the machine runs. After the
machine's end, this module writes the ring as trace-CORE.txt. The file has a line for each entry, with the core's instruction count and the
function's name, indented by the entry's depth. Consecutive equal entries share a line.
"""

import contextlib
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from boot import link_image
from tools import progress, qemu_plugin, toolchain
from tools.debugger import symbols_of

PLUGIN_SOURCE = Path(__file__).resolve().parent / "debugger/function_trace.c"
ENTRIES = 100_000
HEADER = struct.Struct("<QQ")
ENTRY = struct.Struct("<QII")
FUNCTION = struct.Struct("<QQQ")
# Functions that the CPU enters without a call (kernel/x86/vectors.S).
BY_INTERRUPT = ("exception_entries", "interrupt_entries")
INDENTED_MAX = 60


@contextlib.contextmanager
def tracing(image: Path, core: int, out: Path | None = None, entries: int = ENTRIES) -> Iterator[list[str]]:
    """Yields QEMU's arguments for the trace, and writes the text file at the end. The machine MUST end before the `with` block ends."""
    out = out or Path(f"trace-{core}.txt")
    tools = str(toolchain.require() / "bin/x86_64-neap-elf-")
    found = link_image.functions(tools, symbols_of(image))
    names = link_image.readable(tools, [name for _, _, name in found])
    with tempfile.TemporaryDirectory(prefix="neap-trace-") as directory:
        table, ring = Path(directory) / "functions", Path(directory) / "ring"
        with open(table, "wb") as file:
            for offset, size, name in found:
                first = link_image.IMAGE_BASE + offset
                file.write(FUNCTION.pack(first, first + size, name in BY_INTERRUPT))
        with open(ring, "wb") as file:
            file.truncate(HEADER.size + entries * ENTRY.size)
        yield qemu_plugin.option(qemu_plugin.library(PLUGIN_SOURCE), f"out={ring}", f"functions={table}", f"cpu={core}")
        written = write_text(ring.read_bytes(), names, out)
        progress.say(f"neap: trace: {out}: the last {min(written, entries)} of {written} functions that core {core} entered")


def write_text(ring: bytes, names: list[str], out: Path) -> int:
    """Writes the ring as text. Returns the total number of entries, including overwritten entries."""
    written, capacity = HEADER.unpack_from(ring)
    kept = min(written, capacity)
    shallowest = min((depth for _, _, depth in _entries(ring, written, capacity)), default=0)
    with open(out, "w") as text:
        text.write(f"# instructions, functions by depth; {written - kept} earlier entries are not here\n")
        before: tuple[int, int] | None = None
        repeated = 0
        for instructions, function, depth in _entries(ring, written, capacity):
            if (function, depth) == before:
                repeated += 1
                continue
            _end_line(text, repeated)
            before, repeated = (function, depth), 1
            name = names[function] if function < len(names) else f"function {function}"
            text.write(f"{instructions:>14} {'  ' * min(depth - shallowest, INDENTED_MAX)}{name}")
        _end_line(text, repeated)
    return written


def _end_line(text, repeated: int) -> None:
    if repeated:
        text.write(f" x {repeated}\n" if repeated > 1 else "\n")


def _entries(ring: bytes, written: int, capacity: int) -> Iterator[tuple[int, int, int]]:
    for position in range(written - min(written, capacity), written):
        yield ENTRY.unpack_from(ring, HEADER.size + position % capacity * ENTRY.size)
