# SPDX-License-Identifier: BSL-1.0
"""`./neap new NAME`: makes a folder with a new application, from tools/template/."""

import re
import shutil
import tempfile
from pathlib import Path

from tools import build, installed
from tools.errors import Failure, UsageError
from tools.launcher_name import worded

TEMPLATE = Path(__file__).with_name("template")
# Names that are valid as a CMake target, as a file name, and as a word on the console.
NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
# Names that CMake or the toolchain use for their own targets.
RESERVED = ("all", "clean", "help", "install", "package", "test", "neap")
# Maps file names in the template to names in the new folder. A `.gitignore` in the template would hide the template's files from git.
RENAMED = {"gitignore": ".gitignore"}


def new(name: str, directory: str | None) -> int:
    folder = make(name, directory)
    print(f"{folder}: main.cpp, CMakeLists.txt, CMakePresets.json, a test")
    print(worded(f"neap: ./neap run '{folder}' boots it, ./neap test '{folder}' tests it"))
    return 0


def make(name: str, directory: str | None) -> Path:
    """Makes the folder DIRECTORY/NAME atomically and returns it. Raises UsageError for an invalid name, or if the folder exists."""
    if not NAME.fullmatch(name):
        raise UsageError(f"an application's name is a small letter, then up to 31 of a-z 0-9 _ -, not '{name}'")
    if name in RESERVED or name in build.applications():
        raise UsageError(f"'{name}' is taken by {'CMake or Neap' if name in RESERVED else 'an application of Neap'}")
    parent = Path(directory).expanduser().resolve() if directory is not None else _default_parent()
    if parent == build.REPOSITORY or build.REPOSITORY in parent.parents:
        hint = "name a folder elsewhere by --dir" + ("" if installed.release() else "; what belongs here goes into apps/")
        raise UsageError(f"{parent} is inside Neap's {'installation' if installed.release() else 'checkout'}", hint)
    if not parent.is_dir():
        raise UsageError(f"there is no folder {parent}")
    folder = parent / name
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is there already", "choose another name, or remove it")
    try:
        making = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
        try:
            _fill(making, name)
            making.chmod(0o755)
            making.rename(folder)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    except PermissionError:
        raise Failure(f"{parent} cannot be written to", "name another folder by --dir") from None
    return folder


def _default_parent() -> Path:
    """Returns the current directory, or the checkout's parent if the current directory is inside the checkout."""
    here = Path.cwd()
    return build.REPOSITORY.parent if here == build.REPOSITORY or build.REPOSITORY in here.parents else here


def _fill(folder: Path, name: str) -> None:
    version = re.search(r"project\(neap VERSION ([0-9.]+)", (build.REPOSITORY / "CMakeLists.txt").read_text())
    assert version, "the top CMakeLists.txt names no version"
    for source in sorted(TEMPLATE.iterdir()):
        if source.is_file():
            text = source.read_text().replace("@NAME@", name).replace("@NEAP_VERSION@", version[1])
            text = worded(text) if source.suffix == ".md" else text
            (folder / RENAMED.get(source.name, source.name)).write_text(text)
