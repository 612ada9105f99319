# SPDX-License-Identifier: BSL-1.0
"""`./neap release`: all files of a release, made from one commit. docs/releasing.md describes them.

Two releases of one commit MUST be equal byte by byte, wherever they are built. So the sources are those of the commit and no others
(staging.py), no file has the path of a folder or the time of the build, and archives are written with sorted names, fixed times and fixed
rights (wheel.py, source_archive.py).
"""

from tools.release.assembly import assemble
from tools.release.stage import Stage, of_checkout

__all__ = ["Stage", "assemble", "of_checkout"]
