# SPDX-License-Identifier: BSL-1.0
"""A toolchain for tests, whose recipe takes no time and whose "compiler" compiles nothing."""

import subprocess
from pathlib import Path

from tools import cache, toolchain
from tools.fake_mirror import FakeMirror

# The "compiler" copies its source. The steps binutils and gcc log that they ran. The step gcc waits while the file `wait` exists, and fails
# if `fail` exists. The step beside binutils does so for `wait-beside` and `fail-beside`.
RECIPE = """
source_date_epoch = 1
[lists]
both = ["both"]
[variables]
target_flags = "--from={{work}}"
[[step]]
name = "binutils"
seconds = 1
directory = "build/binutils"
commands = [["sh", "-c", "cat ../../binutils/file; test ! -e half; touch half; echo binutils >> '{log}'", "@both"]]
[[step]]
name = "gcc libraries"
seconds = 1
beside = "binutils"
directory = "build/libraries"
commands = [
  ["sh", "-c", "cat ../../gcc/file; while test -e '{log}.wait-beside'; do sleep 0.05; done; touch '{log}.beside'"],
  ["sh", "-c", "test ! -e '{log}.fail-beside'"],
]
[[step]]
name = "gcc"
seconds = 2
directory = "build/gcc"
commands = [
  ["sh", "-c", "test ! -e half; touch half; echo gcc >> '{log}'; while test -e '{log}.wait'; do sleep 0.05; done"],
  ["sh", "-c", "test ! -e '{log}.fail'"],
  ["sh", "-c", "mkdir -p '{{prefix}}/bin' '{{prefix}}/empty' && cp ../../gcc/compiler '{{prefix}}/bin/x86_64-neap-elf-g++'"],
  ["sh", "-c", "chmod +x '{{prefix}}/bin/x86_64-neap-elf-g++' && ln -sf x86_64-neap-elf-g++ '{{prefix}}/bin/x86_64-neap-elf-c++'"],
]
"""
COMPILER = '#!/bin/sh\nwhile test $# -gt 0; do test "$1" = -o && out=$2; shift; done\necho object > "$out"\n'
NEWLIB_PATCH = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-newlib\n+newlib for neap\n"

BUILDER = """
import sys
from pathlib import Path
from tools import toolchain
from tools.archive import Archive
from tools.errors import Failure
toolchain.RECIPE_DIRECTORY = Path(sys.argv[1])
toolchain.STATIC_LIBRARIES = ("c",)
try:
    print(toolchain.build(Archive(Path(sys.argv[2]), Path(sys.argv[3]))))
except Failure as failure:
    print(failure.report())
"""


class Trial:
    """A recipe directory, the mirror with its sources, and the log of the steps that ran."""

    def __init__(self, directory: Path, mirror: FakeMirror):
        self.directory = directory
        self.mirror = mirror
        self.log = directory / "steps"
        directory.mkdir()
        (directory / "recipe.toml").write_text(RECIPE.format(log=self.log))
        (directory / "patches/newlib").mkdir(parents=True)
        (directory / "patches/newlib/0001.patch").write_text("Why.\n\n" + NEWLIB_PATCH)
        self.debs = {name: self.add(name, "1") for name in toolchain.SOURCES}
        self.pin()

    def add(self, name: str, version: str) -> Path:
        tree = self.mirror.directory / f"{name}-{version}"
        tree.mkdir()
        (tree / "file").write_text(f"{name}\n")
        (tree / "compiler").write_text(COMPILER)
        archive = self.mirror.directory / f"{name}-{version}.tar.xz"
        subprocess.run(["tar", "-C", str(tree.parent), "-cJf", str(archive), tree.name], check=True, timeout=60)
        return self.mirror.add_package(f"{name}-source", version, {f"usr/src/{name}/{name}-{version}.tar.xz": archive})

    def pin(self, **digests: str) -> None:
        rows = [
            f'[{name}]\npackage = "{name}-source"\nversion = "1"\nsha256 = "{digests.get(name, cache.file_sha256(deb))}"\n'
            f'directory = "usr/src/{name}"\n'
            for name, deb in self.debs.items()
        ]
        (self.directory / "sources.toml").write_text("\n".join(rows))

    def ran(self) -> list[str]:
        return self.log.read_text().split() if self.log.exists() else []

    def builder(self) -> tuple[str, str, str, str]:
        return BUILDER, str(self.directory), str(self.mirror.system_root), str(self.mirror.keyring)
