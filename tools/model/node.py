# SPDX-License-Identifier: BSL-1.0
"""Node on Linux as the peer of the web server on the model machine: Debian 13's package, unpacked into the guest's initramfs.

Debian 12 has an older Node, so program and libraries are those of Debian 13, with their own C library. They do not touch the guest's files.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from tools import cache, progress
from tools.archive import SUITE, Archive
from tools.errors import Failure
from tools.process import output_of

PACKAGE, MAJOR = "nodejs", 20
NEEDED_BYTES = 400_000_000
# Folders of the guest, and the parts of Node's own library that Debian keeps in files of their own. The program has their paths.
PLACE, SCRIPTS = "node", "scripts"
LOADER = "ld-linux-x86-64.so.2"
_BUILTIN = re.compile(rb"/usr/share/nodejs/[\w./-]+\.js")


@functools.cache
def root() -> Path:
    """The unpacked package and its dependencies. They are fetched if the cache lacks them. Raises Failure."""
    archive = Archive()
    wanted = sorted(archive.closure(PACKAGE, SUITE))
    version = dict(wanted).get(PACKAGE, "")
    if not version.startswith(f"{MAJOR}."):
        raise Failure(f"Debian's {SUITE} has {PACKAGE} {version or 'not'}, and the comparison is with Node {MAJOR}")
    entry = cache.Entry("node", cache.digest(*(f"{name} {version}" for name, version in wanted)))
    with entry.making(work="fetches Node") as needed:
        if needed:
            cache.require_space(cache.root(), NEEDED_BYTES, "Node")
            with progress.step(f"fetching Node {version} ({len(wanted)} packages of Debian's {SUITE})"):
                archive.unpack(wanted, entry.path)
    return entry.path


def files(scripts: Mapping[str, Path]) -> dict[str, Path]:
    """The files for the initramfs, by their paths in the guest. `scripts`: by their names."""
    place = root()
    libraries, program = place / "usr/lib/x86_64-linux-gnu", place / "usr/bin/node"
    loader = libraries / LOADER
    listed = output_of([str(loader), "--library-path", str(libraries), "--list", str(program)])
    found = [Path(name) for name in re.findall(r"=> (\S+) \(", listed) if Path(name).name != LOADER]
    node_library = next((path for path in found if path.name.startswith("libnode.")), program)
    builtins = sorted(set(_BUILTIN.findall(node_library.read_bytes())))
    return {
        f"{PLACE}/node": program,
        f"{PLACE}/{LOADER}": loader,
        **{f"{PLACE}/lib/{path.name}": path for path in found},
        **{name.decode().lstrip("/"): place / name.decode().lstrip("/") for name in builtins},
        **{f"{SCRIPTS}/{name}.js": path for name, path in scripts.items()},
    }
