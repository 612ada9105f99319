# SPDX-License-Identifier: BSL-1.0
"""`./neap pxe` and `./neap iso`: put applications into a tree from which machines boot, or into one disc image.

A measurement is worthless if the measured program is not known. So images must be up to date and built from a commit. `--dirty` allows
other images, and the tree's README then says so.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from boot import write_commit
from tools import (
    boot_loaders,
    boot_machines,
    boot_menu,
    boot_programs,
    boot_serve,
    boot_tree,
    build,
    cache,
    installed,
    outside,
    packages,
    progress,
    web_archive,
)
from tools.boot_machines import Machines
from tools.errors import Failure, UsageError
from tools.process import finished

PRESET = "image"
GIT_SECONDS = 60


@dataclasses.dataclass
class Options:
    applications: Sequence[str] = ()
    out: str = ""
    machines: str | None = None
    linux: str | None = None
    initrd: str | None = None
    script: str | None = None
    dirty: bool = False
    next: str | None = None
    serve: str | None = None
    http_port: int = 80
    words: Sequence[str] = ()


def pxe(options: Options) -> int:
    """Makes a tree, sets a machine's next boot, and serves the tree, each only if requested."""
    out = Path(options.out)
    if not options.applications and options.next is None and options.serve is None:
        raise UsageError("pxe: name the applications that the tree is to boot", f"applications: {', '.join(build.applications())}")
    if not options.applications and (options.machines or options.linux or options.initrd or options.script):
        raise UsageError("pxe: --machines, --linux, --initrd and --script belong to a tree that is made: name its applications")
    if options.script and options.applications and web_archive.APPLICATION not in options.applications:
        raise UsageError(f"pxe: --script is for {web_archive.APPLICATION}, which is not among the applications")
    if options.initrd and not options.linux:
        raise UsageError("pxe: --initrd is for --linux KERNEL")
    if options.words and options.next is None:
        raise UsageError("pxe: words after -- are for --next; a tree's command lines stand in the machines' file")
    if not 0 <= options.http_port <= 65535:
        raise UsageError(f"pxe: --http takes a port from 1 to 65535, or 0 for none, not {options.http_port}")
    if options.applications:
        _make(out, options)
    if options.next is not None:
        _choose(out, options.next, options.words)
    if options.serve is not None:
        return boot_serve.serve(out, options.serve, options.http_port)
    return 0


def iso(application: str, out: str | None, dirty: bool, words: Sequence[str], script: str | None = None) -> int:
    """Writes one disc image of an application, for CD and disk, BIOS and UEFI."""
    ((name, folder),) = _folders([application]).items()
    line = boot_machines.check_words(" ".join(words), "the command line")
    target = Path(out or f"{folder.name if folder else name}.iso").absolute()
    if target.is_dir():
        raise Failure(f"{target} is a directory", "--out names the file to write")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise Failure(f"there is no directory {target.parent} that can be written to", "--out names the file to write")
    if script is not None and application != web_archive.APPLICATION:
        raise UsageError(f"iso: --script is for {web_archive.APPLICATION}, {application} has none")
    module = web_archive.of(Path(script)) if script is not None else b""
    with current([application], dirty) as built:
        ((name, image),) = built.images.items()
        write_disc(target, name, image, line, built.source, module)
    print(f"{target} {target.stat().st_size}")
    return 0


def write_disc(target: Path, application: str, image: Path, words: str, source: str, module: bytes = b"") -> None:
    """Writes the disc image of one application atomically. `module`: its boot module, if it has one."""
    programs = boot_programs.require()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as name:
        tree = Path(name) / "tree"
        for folder in ("images", "grub"):
            (tree / folder).mkdir(parents=True)
        shutil.copyfile(image, tree / f"images/{application}.elf")
        path = boot_tree.module_path(application) if module else ""
        if module:
            (tree / path).write_bytes(module)
        entry = boot_menu.Entry(application, f"images/{application}.elf", words, module=path)
        (tree / "grub/grub.cfg").write_text(boot_menu.grub_menu({application: entry}, application, 1, machines=False))
        marker = f"neap-{cache.digest(cache.file_sha256(image), words, module)}"
        (tree / marker).write_text(f"{application}\n{source}\n")
        made = Path(name) / "disc.iso"
        boot_loaders.disc(programs, tree, marker, made)
        made.replace(target)


@dataclasses.dataclass(frozen=True)
class Built:
    """The path of each application's image, and a line about the images' source."""

    images: dict[str, Path]
    source: str


@contextlib.contextmanager
def current(applications: Sequence[str], dirty: bool) -> Iterator[Built]:
    """Brings the images of applications, given by name or folder, up to date. Inside the `with` block, no other neap builds them. Raises
    Failure if an application was never built and, without `dirty`, if its sources differ from their commit."""
    folders = _folders(applications)
    with contextlib.ExitStack() as locks:
        locks.enter_context(build.building(PRESET))
        source = _source(folders, dirty)
        if not installed.release() or any(folders.values()):
            packages.require("build")
        # An existing image is brought up to date, as `./neap run` does. An image older than its sources would match no commit.
        if own := [word for word, folder in folders.items() if not folder]:
            build.build_locked(PRESET, [f"{name}.elf" for name in own])
        images: dict[str, Path] = {}
        for word, folder in folders.items():
            made = locks.enter_context(outside.built_locked(folder, PRESET)) if folder else None
            name, image = (made.name, made.image) if made else (word, build.image(word, PRESET))
            if not boot_machines.NAME.fullmatch(name):
                raise Failure(f"'{name}' cannot be named in a boot menu", "letters, digits, _ . - are taken")
            if name in images:
                raise Failure(f"two applications are named {name}")
            images[name] = image
        yield Built(images, source)


def _folders(applications: Sequence[str]) -> dict[str, Path | None]:
    """Maps each application to its own folder, or to None if it belongs to this checkout. Raises UsageError for an unknown application."""
    found = {word: outside.folder(word) for word in applications}
    for word, folder in found.items():
        if not folder:
            build.require_application(word)
    return found


def _source(folders: Mapping[str, Path | None], dirty: bool) -> str:
    """Returns a text that names the commits of the applications' sources. Raises Failure like current()."""
    own = [name for name, folder in folders.items() if not folder]
    for name in own:
        if not build.image(name, PRESET).is_file():
            raise Failure(f"{name} is not built", f"./neap build {name}")
    parts = []
    prefix = os.environ.get(outside.PREFIX_VARIABLE)
    if own or prefix is None:
        parts.append(f"{', '.join(own) or 'Neap'} of {_commit_of(build.REPOSITORY, 'this checkout', dirty)}")
    parts += [f"{folder.name} of {_commit_of(folder, str(folder), dirty)}" for folder in folders.values() if folder]
    return "; ".join(parts)


def _commit_of(place: Path, what: str, dirty: bool) -> str:
    """Returns a text like 'commit HASH' for a folder. Raises Failure if files differ from the commit, unless `dirty`."""
    commit, changed = checkout_state(place)
    if changed and not dirty:
        first = f"{changed[0]}{f' and {len(changed) - 1} more' if len(changed) > 1 else ''}"
        raise Failure(f"{what} has uncommitted changes: {first}", "commit them, or add --dirty")
    return f"{f'commit {commit}' if commit else 'a copy without history'}{' with changes of its own' if changed else ''}"


def checkout_state(place: Path) -> tuple[str, list[str]]:
    """Returns the commit, and the files of a folder that differ from it, including untracked files. The top folder of this checkout has no
    sources, so untracked files there (machines.toml, logs, discs) are ignored. Sources without git have the commit in cmake/commit.txt. A
    copy of an installed Neap's sources is compared with these; other sources without git have no record of changes. Other folders outside
    git have the commit ""."""
    if commit := write_commit.archived(place):
        return commit, installed.changed() if place == build.REPOSITORY else []
    if place == build.REPOSITORY and (known := installed.released()):
        return known.commit, installed.changed()
    if not any((folder / ".git").exists() for folder in (place, *place.parents)):
        return "", []
    # With --quiet, git prints no error message if there is no commit yet.
    commit = _git(place, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    changed = _git(place, "status", "--porcelain", "--", ".").splitlines()
    if place == build.REPOSITORY:
        changed = [line for line in changed if not re.fullmatch(r"\?\? [^/]+/?", line)]
    return commit, [line[3:] for line in changed]


def _git(place: Path, *words: str) -> str:
    """Returns the output of git. Raises Failure with git's error message, for example about a wrong owner or a damaged repository."""
    try:
        done = finished(["git", "-C", str(place), *words], GIT_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        raise Failure(f"git does not say what {place} is: {error}") from None
    if done.returncode != 0 and done.stderr:
        raise Failure(f"git does not say what {place} is: {done.stderr.splitlines()[0]}")
    return done.stdout


def _make(out: Path, options: Options) -> None:
    if len(set(options.applications)) != len(options.applications):
        raise UsageError("pxe: an application is named twice")
    # All checks come before anything is built, fetched or written.
    _folders(options.applications)
    boot_tree.require_place(out.absolute())
    machines = boot_machines.read(Path(options.machines)) if options.machines else Machines()
    linux, initrd = (Path(name) if name else None for name in (options.linux, options.initrd))
    for file in (linux, initrd):
        if file and not file.is_file():
            raise Failure(f"there is no file {file}")
    modules = {web_archive.APPLICATION: web_archive.of(Path(options.script))} if options.script else {}
    with current(options.applications, options.dirty) as built:
        if linux and boot_machines.LINUX in built.images:
            raise Failure(f"an application is named {boot_machines.LINUX}, as the kernel of --linux is")
        contents = boot_tree.Contents(built.images, machines, linux, initrd, built.source, modules)
        machines.require_entries(contents.entries(), options.machines or "the machines' file")
        boot_tree.write(out, contents)
    progress.say(f"neap: {out}: a boot tree for {', '.join(built.images)}")


def _choose(out: Path, choice: str, words: Sequence[str]) -> None:
    name, equals, boot = choice.rpartition("=")
    if not equals or not name or not boot:
        raise UsageError(f"pxe: --next takes MACHINE=IMAGE, not '{choice}'")
    machine = boot_tree.choose_next(out, name, boot, " ".join(words) if words else None)
    line = f" with '{machine.words}'" if machine.words else ""
    progress.say(f"neap: {machine.name} boots {boot}{line} from its next start on")
