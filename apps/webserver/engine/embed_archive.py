# SPDX-License-Identifier: BSL-1.0
"""Embeds scripts in the image: writes an archive (archive.hpp), and an assembler file that includes its bytes.

    embed_archive.py --output FILE.S --symbol NAME --entry SCRIPT FOLDER|FILE

All `.js` files below FOLDER are in the archive, with their paths relative to FOLDER, except those of folders named `tests`. The archive
is beside the output, FILE.bin. C++ finds it between NAME_begin and NAME_end.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from tools import web_archive  # noqa: E402 - the build starts this file by its path

ASSEMBLER = """\
    .section .rodata.{symbol}, "a"
    .balign 16
    .global {symbol}_begin
    .global {symbol}_end
{symbol}_begin:
    .incbin "{path}"
{symbol}_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--symbol", required=True)
    parser.add_argument("--entry", required=True)
    parser.add_argument("place", type=Path)
    arguments = parser.parse_args()
    place = arguments.place
    folder = place if place.is_dir() else place.parent
    scripts = [path for path in place.rglob("*.js") if "tests" not in path.relative_to(folder).parts] if place.is_dir() else [place]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in scripts}
    binary = arguments.output.with_suffix(".bin")
    binary.write_bytes(web_archive.pack(files, arguments.entry))
    arguments.output.write_text(ASSEMBLER.format(symbol=arguments.symbol, path=binary))


if __name__ == "__main__":
    main()
