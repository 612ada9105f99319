# SPDX-License-Identifier: BSL-1.0
"""Links an image that contains the names of its own functions.

A panic must print names without a debugger, so the image carries a table of its functions. Addresses are known only after a link, so there
are two links. The second link adds the table, made from the first link's result. The table is placed behind all code, so it moves no
function; this is checked. To make both links fast, a first step joins all our code into one relocatable file, with link-time optimisation.

    link_image.py --compiler x86_64-neap-elf-g++ --script image.ld --output app.elf -- <objects, libraries, options of the first step>

writes app.elf for boot loaders, and app.debug.elf for debuggers. kernel/x86/symbols.hpp describes the table.
"""

import argparse
import collections
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGE_BASE = 0xFFFFFFFF80000000
PIECES_PER_ROUND = 32
ROUNDS = 4  # up to 128 pieces of names, each abbreviated to a byte from 0x80 on
FIRST_PIECE = 0x80
PIECE_WORDS_MAX = 5
NAME_BYTES_MAX = 180


# C and C++ library facilities that Neap lacks. A program uses one if the linker reports a function of this list as undefined.
MISSING = {
    "Neap has no file system: std::filesystem's operations, directories and links cannot be used; fopen and std::fstream find no file": (
        *"chdir getcwd opendir readdir closedir rename truncate ftruncate symlink readlink pathconf fchmod fchmodat chmod rmdir".split(),
        *"realpath utimensat statvfs".split(),
    ),
    "Neap has no processes: one image is the only program": "fork vfork execve execl execv wait waitpid pipe popen pclose system".split(),
}


def missing(output: str) -> list[str]:
    """Returns explanations for the undefined references in the linker's output."""
    undefined = set(re.findall(r"undefined reference to `(\w+)'", output))
    return [why for why, names in MISSING.items() if undefined & set(names)]


def run(command: list[str], **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, **options)
    sys.stderr.write(done.stderr)
    if done.returncode != 0:
        for why in missing(done.stderr):
            print(f"link_image.py: {why}", file=sys.stderr)
        sys.exit(f"link_image.py: {command[0]} failed with status {done.returncode}")
    return done.stdout


def link(compiler: str, script: Path, output: Path, inputs: list[Path]) -> None:
    options = ["-fno-lto", "-Wl,--gc-sections,--eh-frame-hdr,--build-id=none,--no-warn-rwx-segments"]
    run([compiler, "-T", str(script), *options, "-o", str(output), *map(str, inputs), "-lstdc++exp"])


def functions(tools: str, image: Path) -> list[tuple[int, int, str]]:
    """Returns (offset in the image, bytes, linker's name) of each function, one per address, ascending."""
    best: dict[int, tuple[int, int, str]] = {}
    for line in run([f"{tools}nm", "--print-size", "--defined-only", str(image)]).splitlines():
        words = line.split()
        if len(words) == 4:
            address, size, kind, name = int(words[0], 16), int(words[1], 16), words[2], words[3]
        elif len(words) == 3:
            address, size, kind, name = int(words[0], 16), 0, words[1], words[2]
        else:
            continue
        if kind not in "tTwWiu" or address < IMAGE_BASE or name.startswith(".L"):
            continue
        # Of several names at one address: prefer one with a size, then a global one, then the shortest.
        rank = (size == 0, kind not in "TW", len(name), name)
        if address not in best or rank < best[address][0]:
            best[address] = (rank, size, name)
    found = [(address - IMAGE_BASE, size, name) for address, (_, size, name) in sorted(best.items())]
    # Assembler labels have no size, so they extend to the next label.
    return [(offset, size or (found[i + 1][0] - offset if i + 1 < len(found) else 1), name) for i, (offset, size, name) in enumerate(found)]


def readable(tools: str, names: list[str]) -> list[str]:
    text = run([f"{tools}c++filt", "--no-params"], input="\n".join(names) + "\n")
    return [name.encode("ascii", "replace")[:NAME_BYTES_MAX].decode() for name in text.splitlines()]


def abbreviate(names: list[str]) -> tuple[list[bytes], list[bytes]]:
    """Replaces the most frequent pieces of names by one byte each. Returns the names and the pieces. The result is deterministic."""
    coded = [name.encode() for name in names]
    pieces: list[bytes] = []
    words = re.compile(rb"[A-Za-z0-9_]+|[^A-Za-z0-9_]")
    for _ in range(ROUNDS):
        saved: collections.Counter[bytes] = collections.Counter()
        for name in coded:
            tokens = words.findall(name)
            for first in range(len(tokens)):
                piece = b""
                for token in tokens[first : first + PIECE_WORDS_MAX]:
                    if token[0] >= FIRST_PIECE:
                        break
                    piece += token
                    if len(piece) > 1:
                        saved[piece] += len(piece) - 1
        chosen: list[bytes] = []
        for piece, _saving in sorted(saved.items(), key=lambda item: (-item[1], item[0])):
            if any(piece in other or other in piece for other in chosen):
                continue  # the piece overlaps a chosen one, so it waits for the next round, which counts again
            chosen.append(piece)
            if len(chosen) == PIECES_PER_ROUND:
                break
        codes = {piece: bytes([FIRST_PIECE + len(pieces) + i]) for i, piece in enumerate(chosen)}
        pieces += chosen
        if codes:
            pattern = re.compile(b"|".join(re.escape(piece) for piece in chosen))
            coded = [pattern.sub(lambda match, codes=codes: codes[match[0]], name) for name in coded]
    return coded, pieces


def table(tools: str, found: list[tuple[int, int, str]]) -> bytes:
    coded, pieces = abbreviate(readable(tools, [name for _, _, name in found]))
    text = bytearray()
    places: dict[bytes, int] = {}

    def place(entry: bytes) -> int:
        if entry not in places:
            places[entry] = len(text)
            text.extend(entry + b"\0")
        return places[entry]

    name_offsets = [place(name) for name in coded]
    piece_offsets = [place(piece) for piece in pieces]
    numbers = [len(found), len(pieces), len(text), 0]
    numbers += [offset for offset, _, _ in found]
    numbers += [size for _, size, _ in found]
    numbers += name_offsets + piece_offsets
    return struct.pack(f"<{len(numbers)}I", *numbers) + bytes(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", required=True, help="the toolchain's g++; the other programs are in the same folder")
    parser.add_argument("--script", required=True, type=Path, help="linker script")
    parser.add_argument("--output", required=True, type=Path, help="to write: NAME.elf, and NAME.debug.elf beside it")
    parser.add_argument("inputs", nargs="+", help="objects, libraries and options for joining them")
    arguments = parser.parse_args()
    compiler, script, output = arguments.compiler, arguments.script, arguments.output
    tools = compiler.removesuffix("g++")

    with tempfile.TemporaryDirectory(dir=output.parent, prefix=output.name + ".") as directory:
        scratch = Path(directory)
        joined = scratch / "joined.o"
        run([compiler, "-r", "-nostdlib", "-o", str(joined), *arguments.inputs])
        first = scratch / "first.elf"
        link(compiler, script, first, [joined])
        found = functions(tools, first)
        (scratch / "symbols.bin").write_bytes(table(tools, found))
        (scratch / "symbols.S").write_text('.section .symbols, "a", @progbits\n.balign 8\n.incbin "symbols.bin"\n', encoding="ascii")
        run([f"{tools}gcc", "-c", "-o", "symbols.o", "symbols.S"], cwd=scratch)
        second = scratch / "second.elf"
        link(compiler, script, second, [joined, scratch / "symbols.o"])
        if functions(tools, second) != found:
            sys.exit(f"link_image.py: functions of {output.name} moved between the two links, so its names would be wrong")
        image = scratch / "image.elf"
        run([f"{tools}strip", "--remove-section=.comment", "-o", str(image), str(second)])
        os.replace(second, output.with_suffix(".debug.elf"))
        os.replace(image, output)


if __name__ == "__main__":
    main()
