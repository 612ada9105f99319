# SPDX-License-Identifier: BSL-1.0
"""The profile of a run on the model machine: its instructions by source file and by function (sim/machine/profile.hpp writes it).

Link-time optimisation inlines most functions, so a symbol of the image says little. The debugger's line information names the innermost
inlined function of each address and the file that defines it. An instruction belongs to that file, and a file to a layer.
"""

import dataclasses
import re
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tools import toolchain
from tools.debugger import symbols_of
from tools.errors import Failure

# The first prefix of a source file's path that matches names its layer.
LAYERS: Sequence[tuple[str, str]] = (
    ("apps/memcached/session", "memcached: session"),
    ("apps/memcached/conversation", "memcached: session"),
    ("apps/memcached/text_protocol", "memcached: parse"),
    ("apps/memcached/binary_protocol", "memcached: parse"),
    ("apps/memcached/protocol", "memcached: parse"),
    ("apps/memcached/numbers", "memcached: parse"),
    ("apps/memcached/reply", "memcached: reply"),
    ("apps/memcached/holders", "memcached: reply"),
    ("apps/memcached/", "memcached: store"),
    ("apps/webserver/quickjs/", "QuickJS"),
    ("neap_quickjs/", "QuickJS"),
    ("apps/webserver/llhttp/", "web server: HTTP"),
    ("neap_llhttp/", "web server: HTTP"),
    ("apps/webserver/http", "web server: HTTP"),
    ("apps/webserver/session", "web server: HTTP"),
    ("apps/webserver/exchange", "web server: HTTP"),
    ("apps/webserver/engine/", "web server: engine"),
    ("apps/webserver/ada/", "web server: engine"),
    ("neap_ada/", "web server: engine"),
    ("apps/webserver/", "web server: binding"),
    ("apps/tpcc/engine/", "transactions: engine"),
    ("apps/tpcc/session", "tpcc: session"),
    ("apps/tpcc/text_protocol", "tpcc: session"),
    ("apps/tpcc/", "tpcc: procedures"),
    ("apps/", "application"),
    ("kernel/siphash", "memcached: store"),
    ("kernel/rcu", "memcached: store"),
    ("kernel/spin_lock", "memcached: store"),
    ("kernel/libc/", "C library"),
    ("kernel/memory/", "malloc"),
    ("kernel/timer", "timers"),
    ("kernel/log", "log"),
    ("observe/", "log"),
    ("kernel/", "loop and interrupt"),
    ("drivers/", "driver"),
    ("net/connection", "connection"),
    ("net/buffer", "connection"),
    ("net/", "stack glue"),
    ("lwip/", "lwIP"),
)
OTHER = "C library and start-up"
ANONYMOUS = "(anonymous namespace)::"
ADDRESS = re.compile(r"^0x[0-9a-f]+\n", re.MULTILINE)
# Small functions of these files are their callers' work.
SHARED = re.compile(r"/include/c\+\+/|/lib/gcc/|libstdc\+\+|^kernel/(panic|counter|callback|error|short_copy)\.hpp$")
BUILD_FOLDER = re.compile(r"/build/[^/]+/")


@dataclasses.dataclass(frozen=True)
class Site:
    """The code at an address: the innermost inlined function, and the path of the file from the repository's root."""

    function: str
    file: str

    @property
    def layer(self) -> str:
        return layer_of(self.file)


class CodePlace(Protocol):
    """A function and its layer, in Neap or in Linux."""

    @property
    def function(self) -> str: ...
    @property
    def layer(self) -> str: ...


@dataclasses.dataclass(frozen=True)
class InstructionProfile:
    """Instructions of a run's window by place."""

    instructions: Mapping[CodePlace, int]

    @property
    def total(self) -> int:
        return sum(self.instructions.values())

    def layers(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for place, count in self.instructions.items():
            found[place.layer] += count
        return found

    def functions(self, layer: str) -> Counter[str]:
        """The instructions of one layer by function."""
        found: Counter[str] = Counter()
        for place, count in self.instructions.items():
            if place.layer == layer:
                found[place.function] += count
        return found


@dataclasses.dataclass(frozen=True)
class Profile(InstructionProfile):
    """Instructions, and cache lines moved between cores, of a run's window, by site."""

    instructions: Mapping[Site, int]
    moved_lines: Mapping[Site, int]

    @property
    def moved(self) -> int:
        return sum(self.moved_lines.values())


def layer_of(file: str) -> str:
    return next((layer for prefix, layer in LAYERS if file.startswith(prefix)), OTHER)


def counts(path: Path) -> dict[int, tuple[int, int]]:
    """By address: the executions, and the moved lines. Raises Failure for a file that is no profile."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
        return {int(address, 16): (int(executions), int(moved)) for address, executions, moved in lines}
    except (OSError, ValueError) as error:
        raise Failure(f"{path} is no profile: {error}") from None


def read(path: Path, image: Path) -> Profile:
    """Reads the profile of a run of `image`."""
    found = counts(path)
    instructions: Counter[Site] = Counter()
    moved: Counter[Site] = Counter()
    for (executions, lines), site in zip(found.values(), _sites(list(found), image), strict=True):
        instructions[site] += executions
        moved[site] += lines
    return Profile(instructions, moved)


def total(path: Path) -> tuple[int, int]:
    """All instructions and all moved lines, for a guest without symbols."""
    found = counts(path).values()
    return sum(executions for executions, _ in found), sum(moved for _, moved in found)


def _sites(addresses: Sequence[int], image: Path) -> list[Site]:
    """The innermost inlined function of each address whose file is not `SHARED`."""
    program = toolchain.require() / "bin/x86_64-neap-elf-addr2line"
    asked = "\n".join(f"{address:#x}" for address in addresses)
    argv = [str(program), "-a", "-i", "-f", "-C", "-e", str(symbols_of(image))]
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, check=False)
    # For each address a line with the address, then a function and a place for each inlined function and for the one around them.
    answers = ADDRESS.split(done.stdout)[1:]
    if done.returncode != 0 or len(answers) != len(addresses):
        raise Failure("addr2line failed", details=done.stderr.splitlines()[-5:])
    return [_site(answer.splitlines()) for answer in answers]


def _site(lines: Sequence[str]) -> Site:
    found = [
        Site(function.replace(ANONYMOUS, "").split("(")[0], _within(place.rpartition(":")[0]))
        for function, place in zip(lines[::2], lines[1::2])
    ]
    return next((site for site in found if not SHARED.search(site.file)), found[-1])


def _within(path: str) -> str:
    """The path from the repository's root; of lwIP from its name on. The compiler's paths lead through the folder of the build."""
    below = BUILD_FOLDER.split(path)[-1].removeprefix("./").removeprefix("net/lwip/")
    return f"lwip/{below.removeprefix('lwip/')}" if below != path and "/lwip/" in path else below
