# SPDX-License-Identifier: BSL-1.0
"""A stage: one folder with the sources of a release and the programs that were built from them.

The command makes a stage in a new folder (staging.py). Tests take a checkout that is built already (`of_checkout`). All writers of files
of a release read only the stage, so they are the same for both.
"""

import dataclasses
import os
import subprocess
from pathlib import Path

from tools import toolchain
from tools.errors import Failure
from tools.process import output_of
from tools.release import version

COMMIT_DIGITS = 12
# The file with the commit of sources without git. `git archive` fills it in (.gitattributes).
COMMIT_FILE = "cmake/commit.txt"
IMAGE_PRESETS = ("image", "image-debug")
GIT_SECONDS = 60
PLUGIN = "machine"


@dataclasses.dataclass(frozen=True)
class Stage:
    """The input of a release. `version`: of CMakeLists.txt. `revision`: the commit's 40 digits. `epoch`: the commit's time, in seconds.
    `toolchain`: the prefix of the cross compiler. `boot_programs`: the unpacked packages of tools/boot_programs.py, None without them.
    A snapshot is a release of a commit that has no tag."""

    tree: Path
    version: str
    revision: str
    epoch: int
    soft_card: Path
    load: Path
    load_stub: Path
    toolchain: Path
    world: Path
    boot_programs: Path | None = None
    snapshot: bool = False

    @property
    def commit(self) -> str:
        """The name of the commit in images, in release.json and in versions of snapshots."""
        return self.revision[:COMMIT_DIGITS]

    @property
    def wheel_version(self) -> str:
        return f"{self.version}.dev0+g{self.commit}" if self.snapshot else self.version

    @property
    def debian_version(self) -> str:
        return f"{self.version}~dev+g{self.commit}" if self.snapshot else self.version

    def source_names(self) -> list[str]:
        """Returns the paths of all source files below `tree`, sorted: the tracked files of a checkout, or all files of a folder that `git
        archive` has written."""
        if (self.tree / ".git").exists():
            listed = output_of(["git", "-C", str(self.tree), "ls-files", "-z"], timeout_seconds=GIT_SECONDS)
            names = [name for name in listed.split("\0") if name and (self.tree / name).is_file()]
        else:
            names = []
            for folder, folders, files in os.walk(self.tree):
                place = Path(folder).relative_to(self.tree)
                folders[:] = [name for name in folders if name != "__pycache__" and str(place / name) != "build"]
                names += [str(place / name) for name in files]
        if not names:
            raise Failure(f"{self.tree} has no sources")
        return sorted(names)

    def source(self, name: str) -> bytes:
        """Returns a source file as it is in the release. Only the file of the commit may differ from the file in `tree`."""
        if name == COMMIT_FILE:
            return f"{self.revision} {self.epoch}\n".encode()
        return (self.tree / name).read_bytes()

    def applications(self) -> list[str]:
        return sorted(path.parent.name for path in (self.tree / "apps").glob("*/main.cpp"))

    def products(self) -> dict[str, Path]:
        """Returns the programs of the wheel, by their path in a checkout. The files need not exist."""
        found = {
            f"build/{preset}/apps/{name}/{name}.elf": self.tree / f"build/{preset}/apps/{name}/{name}.elf"
            for preset in IMAGE_PRESETS
            for name in self.applications()
        }
        found["build/soft82599/release/soft82599"] = self.soft_card
        found["build/load/release/neap-load"] = self.load
        found["build/load/release/neap-load-stub"] = self.load_stub
        found["build/world/release/neap-world"] = self.world
        for plugin in sorted((self.tree / "build" / PLUGIN).glob(f"{PLUGIN}-*.so")):
            found[f"build/{PLUGIN}/{plugin.name}"] = plugin
        return found


def of_checkout(tree: Path, *, snapshot: bool = True) -> Stage:
    """Returns a stage with the products that the usual commands have built in a checkout. The sources are the checkout's tracked files as
    they are now, so the result is for tests, not for others."""
    from tools import boot_programs

    revision, epoch = commit_of(tree, "HEAD")
    programs = boot_programs.find()
    return Stage(
        tree=tree,
        version=version.of_tree(tree),
        revision=revision,
        epoch=epoch,
        soft_card=tree / "build/soft82599/release/soft82599",
        load=tree / "build/load/release/neap-load",
        load_stub=tree / "build/load/release/neap-load-stub",
        toolchain=toolchain.find() or toolchain.entry().path,
        world=tree / "build/world/release/neap-world",
        boot_programs=programs.root if programs else None,
        snapshot=snapshot,
    )


def commit_of(checkout: Path, name: str) -> tuple[str, int]:
    """Returns the 40 digits and the time of a commit. Raises Failure if the folder is no git checkout."""
    argv = ["git", "-C", str(checkout), "show", "--no-patch", "--format=%H %ct", f"{name}^{{commit}}"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GIT_SECONDS)
    if done.returncode != 0:
        raise Failure(f"{checkout} is no git checkout with a commit {name}", "a release is made from a clone of the repository")
    revision, epoch = done.stdout.split()
    return revision, int(epoch)
