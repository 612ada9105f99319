# SPDX-License-Identifier: BSL-1.0
"""Embeds scripts in the image: writes an archive (archive.hpp), and an assembler file that includes its bytes.

    embed_archive.py --output FILE.S --symbol NAME --entry SCRIPT FOLDER|FILE

All `.js` files below FOLDER are in the archive, with their paths relative to FOLDER, except those of folders named `tests`. The archive
is beside the output, FILE.bin. C++ finds it between NAME_begin and NAME_end.
"""

import argparse
import struct
from pathlib import Path

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


def archive(files: dict[str, bytes], entry: str) -> bytes:
    """Returns the bytes of an archive, as archive.hpp describes them."""
    paths = sorted(path.encode() for path in files)
    header = 16 + 16 * len(paths)
    records, body = [], bytearray()
    for path in paths:
        content = files[path.decode()]
        path_offset = header + len(body)
        body += path
        content_offset = header + len(body)
        body += content + b"\0"
        records.append(struct.pack("<4I", path_offset, len(path), content_offset, len(content)))
    return b"NEAPARC1" + struct.pack("<2I", len(paths), paths.index(entry.encode())) + b"".join(records) + bytes(body)


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
    binary.write_bytes(archive(files, arguments.entry))
    arguments.output.write_text(ASSEMBLER.format(symbol=arguments.symbol, path=binary))


if __name__ == "__main__":
    main()
