# SPDX-License-Identifier: BSL-1.0
"""`./neap pxe` and `./neap iso`: what was built here, as a tree that machines boot from, or as one disc image.

What a machine measures is worth nothing if nobody knows what it ran. So only images that are current and of a commit go out;
`--dirty` lets others pass, and then the tree says so.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools import boot_loaders, boot_machines, boot_menu, boot_programs, boot_serve, boot_tree, build, cache, packages, progress
from tools.boot_machines import Machines
from tools.errors import Failure, UsageError
from tools.process import output_of

PRESET = "image"
GIT_SECONDS = 60


@dataclasses.dataclass
class Options:
    """What the command line of `pxe` says."""

    applications: Sequence[str] = ()
    out: str = ""
    machines: str | None = None
    linux: str | None = None
    initrd: str | None = None
    dirty: bool = False
    next: str | None = None
    serve: str | None = None
    http_port: int = 80
    words: Sequence[str] = ()


def pxe(options: Options) -> int:
    """Makes a tree, changes what a machine of it boots next, serves it: whichever are asked for."""
    out = Path(options.out)
    if not options.applications and options.next is None and options.serve is None:
        raise UsageError("pxe: name the applications that the tree is to boot", f"applications: {', '.join(build.applications())}")
    if not options.applications and (options.machines or options.linux or options.initrd):
        raise UsageError("pxe: --machines, --linux and --initrd belong to a tree that is made: name its applications")
    if options.initrd and not options.linux:
        raise UsageError("pxe: --initrd is for --linux KERNEL")
    if options.words and options.next is None:
        raise UsageError("pxe: words after -- are for --next; a tree's command lines stand in the machines' file")
    if not 0 <= options.http_port <= 65535:
        raise UsageError(f"pxe: --http takes a port from 1 to 65535, or 0 for none, not {options.http_port}")
    if options.applications:
        with build.building(PRESET):
            boot_tree.write(out, _contents(options))
        progress.say(f"neap: {out}: a boot tree for {', '.join(options.applications)}")
    if options.next is not None:
        _choose(out, options.next, options.words)
    if options.serve is not None:
        return boot_serve.serve(out, options.serve, options.http_port)
    return 0


def iso(application: str, out: str | None, dirty: bool, words: Sequence[str]) -> int:
    """Writes one disc image of an application: for CD and disk, BIOS and UEFI."""
    build.require_application(application)
    line = boot_machines.check_words(" ".join(words), "the command line")
    target = Path(out or f"{application}.iso").absolute()
    if target.is_dir():
        raise Failure(f"{target} is a directory", "--out names the file to write")
    if not target.parent.is_dir():
        raise Failure(f"there is no directory {target.parent}")
    with build.building(PRESET):
        write_disc(target, application, build.image(application, PRESET), line, require_current([application], dirty))
    print(f"{target} {target.stat().st_size}")
    return 0


def write_disc(target: Path, application: str, image: Path, words: str, source: str) -> None:
    """The disc image of one application, there whole or not at all."""
    programs = boot_programs.require()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as name:
        tree = Path(name) / "tree"
        for folder in ("images", "grub"):
            (tree / folder).mkdir(parents=True)
        shutil.copyfile(image, tree / f"images/{application}.elf")
        entry = boot_menu.Entry(application, f"images/{application}.elf", words)
        (tree / "grub/grub.cfg").write_text(boot_menu.grub_menu({application: entry}, application, 1, machines=False))
        marker = f"neap-{cache.digest(cache.file_sha256(image), words)}"
        (tree / marker).write_text(f"{application}\n{source}\n")
        made = Path(name) / "disc.iso"
        boot_loaders.disc(programs, tree, marker, made)
        made.replace(target)


def require_current(applications: Sequence[str], dirty: bool) -> str:
    """Brings the images up to date and says in a line what they were built from; for a caller that holds `build.building`.

    Raises Failure if one is unknown or was never built, or if no commit names what they were built from.
    """
    for name in applications:
        build.require_application(name)
        if not build.image(name, PRESET).is_file():
            raise Failure(f"{name} is not built", f"./neap build {name}")
    commit, changed = checkout_state(build.REPOSITORY)
    if changed and not dirty:
        first = f"{changed[0]}{f' and {len(changed) - 1} more' if len(changed) > 1 else ''}"
        raise Failure(f"this checkout has changes that no commit names: {first}", "commit them and build again, or add --dirty")
    # What was built once is brought up to date, as `./neap run` does: an image that is older than its sources would be of no commit.
    packages.require("build")
    build.build_locked(PRESET, [f"{name}.elf" for name in applications])
    where = f"commit {commit}" if commit else "a copy without history"
    return f"{', '.join(applications)} of {where}{' with changes of its own' if changed else ''}"


def checkout_state(repository: Path) -> tuple[str, list[str]]:
    """The commit ("" outside git) and the files that differ from it, untracked ones included."""
    if not (repository / ".git").exists():
        return "", []
    git = ["git", "-C", str(repository)]
    commit = output_of([*git, "rev-parse", "HEAD"], timeout_seconds=GIT_SECONDS).strip()
    try:
        done = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        raise Failure(f"git does not say what changed in {repository}: {error}") from None
    return commit, [line[3:] for line in done.stdout.splitlines()]


def _contents(options: Options) -> boot_tree.Contents:
    if len(set(options.applications)) != len(options.applications):
        raise UsageError("pxe: an application is named twice")
    for name in options.applications:
        build.require_application(name)
    # Everything that can be refused is, before anything is fetched or written.
    boot_tree.require_place(Path(options.out).absolute())
    machines = boot_machines.read(Path(options.machines)) if options.machines else Machines()
    linux, initrd = (Path(name) if name else None for name in (options.linux, options.initrd))
    for file in (linux, initrd):
        if file and not file.is_file():
            raise Failure(f"there is no file {file}")
    source = require_current(options.applications, options.dirty)
    images = {name: build.image(name, PRESET) for name in options.applications}
    contents = boot_tree.Contents(images, machines, linux, initrd, source)
    machines.require_entries(contents.entries(), options.machines or "the machines' file")
    return contents


def _choose(out: Path, choice: str, words: Sequence[str]) -> None:
    name, equals, boot = choice.rpartition("=")
    if not equals or not name or not boot:
        raise UsageError(f"pxe: --next takes MACHINE=IMAGE, not '{choice}'")
    machine = boot_tree.choose_next(out, name, boot, " ".join(words) if words else None)
    line = f" with '{machine.words}'" if machine.words else ""
    progress.say(f"neap: {machine.name} boots {boot}{line} from its next start on")
