# SPDX-License-Identifier: BSL-1.0
"""Compares two folders of a release byte by byte, and names the first difference."""

import zipfile
from pathlib import Path

from tools import cache

BLOCK_BYTES = 1 << 20


def difference(first: Path, second: Path) -> str | None:
    """Returns a sentence about the first difference of the files in two folders; None if all files are equal."""
    names, others = ({path.name for path in folder.iterdir()} for folder in (first, second))
    if names != others:
        return f"only one build has {', '.join(sorted(names ^ others))}"
    for name in sorted(names):
        if cache.file_sha256(first / name) != cache.file_sha256(second / name):
            return f"{name} differs {_place(first / name, second / name)}"
    return None


def _place(first: Path, second: Path) -> str:
    """Returns the place at which two files differ: a member of a wheel, or a byte."""
    if first.suffix == ".whl":
        with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
            members, counterparts = one.infolist(), other.infolist()
            for member, counterpart in zip(members, counterparts):
                facts = [(info.filename, info.CRC, info.file_size, info.external_attr, info.date_time) for info in (member, counterpart)]
                if facts[0] != facts[1]:
                    return f"in {member.filename}"
            if len(members) != len(counterparts):
                return f"in the number of members: {len(members)} and {len(counterparts)}"
    with open(first, "rb") as one, open(second, "rb") as other:
        offset = 0
        while True:
            blocks = one.read(BLOCK_BYTES), other.read(BLOCK_BYTES)
            if blocks[0] != blocks[1]:
                shorter = min(map(len, blocks))
                return f"at byte {offset + next((i for i in range(shorter) if blocks[0][i] != blocks[1][i]), shorter)}"
            if not blocks[0]:
                return "nowhere"  # the file was changed between two reads
            offset += BLOCK_BYTES
