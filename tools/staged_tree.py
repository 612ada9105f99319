# SPDX-License-Identifier: BSL-1.0
"""An installation of Neap that a test makes: the launcher's sources and small programs in place of the products.

Its command `packetdrill`, which an installed Neap runs in a copy of the sources, is replaced by one that reports where it runs.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.build import REPOSITORY

VERSION, COMMIT = "0.1.0", "0123456789ab"
NAME = f"{VERSION}-{COMMIT}"
SOURCES = ("neap", "CMakeLists.txt", "boot/__init__.py", "boot/link_image.py", "boot/write_commit.py", "apps/hello/main.cpp")
FOLDERS = ("tools", "toolchain")
SOFT_CARD_SOURCE = "sim/soft82599/src/main.rs"
REPORTER = '''\
"""Reports where the command runs."""

import json

from tools import build, installed, pxe
from tools.launcher_name import NAME


def packetdrill(names):
    where = {"tree": str(installed.TREE), "origin": str(installed.origin()), "name": NAME, "changed": installed.changed()}
    where |= {"programs": build.has_programs(), "card": build.SOFT_CARD.read_text() if build.SOFT_CARD.is_file() else None}
    where |= {"state": pxe.checkout_state(build.REPOSITORY)}
    print(json.dumps(where | {"release": installed.release() is not None, "words": names}))
    return 0
'''
CARD = "#!/bin/sh\necho 'soft82599: ready'\nexec sleep 600\n"
LOAD = '#!/bin/sh\necho "load: $*"\n'


def make(tree: Path, image: Path) -> Path:
    """Makes an installation at `tree`, with `image` as the application hello."""
    for folder in FOLDERS:
        shutil.copytree(REPOSITORY / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "testdata", "*_test.py"))
    for name in SOURCES:
        if (REPOSITORY / name).is_file():
            write(tree / name, (REPOSITORY / name).read_text())
    for folder in ("sim/soft82599", "sim/world", "bench/load"):
        write(tree / folder / "src/main.rs", f"// {folder}\n")
    write(tree / "tools/packetdrill/command.py", REPORTER)
    write(tree / "build/soft82599/release/soft82599", CARD, 0o755)
    for program in ("load/release/neap-load", "load/release/neap-load-stub", "world/release/neap-world"):
        write(tree / "build" / program, LOAD, 0o755)
    for preset in ("image", "image-debug"):
        (tree / f"build/{preset}/apps/hello").mkdir(parents=True)
        shutil.copy(image, tree / f"build/{preset}/apps/hello/hello.elf")
    chain = {"key": "0", "file": "neap-toolchain-0.tar.zst", "sha256": None}
    release = {"format": 1, "version": VERSION, "commit": COMMIT, "epoch": 1767225600, "toolchain": chain}
    write(tree / "release.json", json.dumps(release))
    return tree


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def environment(cache_home: Path, qemu: Sequence[str] = (), **more: str) -> dict[str, str]:
    """Returns an environment for the launcher, with a cache below `cache_home`, and a program beside it that starts `qemu`."""
    own = {"XDG_CACHE_HOME": str(cache_home), "PYTHONDONTWRITEBYTECODE": "1"}
    if qemu:
        program = cache_home.with_name("a qemu")
        words = " ".join(f"'{word}'" for word in qemu)
        write(program, f'#!/bin/sh\nexec {words} "$@"\n', 0o755)
        own["NEAP_QEMU"] = str(program)
    kept = {name: value for name, value in os.environ.items() if name not in ("NEAP_QEMU", "NEAP_CARD")}
    return {**kept, **own, **more}


def start(tree: Path, *words: str, env: dict[str, str], cwd: Path | str = "/") -> subprocess.Popen[str]:
    """Starts the launcher of an installation as its script does."""
    argv = [sys.executable, str(tree / "neap"), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
