# SPDX-License-Identifier: BSL-1.0
"""Writes the archive of the sources: the files of the commit, as `git archive` writes them, compressed by xz.

Names are sorted and all members have the commit's time and owner 0, so the archive depends only on the commit. The compressed bytes also
depend on the version of liblzma.
"""

import io
import lzma
import tarfile
from pathlib import Path

from tools.release.stage import Stage


def write(stage: Stage, out: Path) -> Path:
    """Writes the archive into the folder `out`. Returns its path."""
    top = f"neap-{stage.wheel_version}"
    made = out / f"{top}-source.tar.xz"
    with (
        lzma.open(made, "wb", preset=6, check=lzma.CHECK_CRC64) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in stage.source_names():
            data = stage.source(name)
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mtime = len(data), stage.epoch
            member.mode = 0o755 if (stage.tree / name).stat().st_mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(data))
    return made
