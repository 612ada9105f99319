# SPDX-License-Identifier: BSL-1.0
"""`./neap doctor`: reports the tools that this machine has and the tools that it lacks. Changes nothing."""

import contextlib
import dataclasses
import json
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from tools import boot_programs, build, cache, compile_cache, installed, mirror, packages, pxe, qemu, sources, toolchain
from tools.errors import Failure
from tools.launcher_name import worded
from tools.machine import port_is_free
from tools.run import DEFAULT_FORWARDS


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report. `state` is "ok", "later" (needed or fetched only when a further command is used) or "missing" (the user has
    to act)."""

    name: str
    state: str
    detail: str


def doctor(as_json: bool) -> int:
    """Prints the findings. Returns 1 if the user has to install something."""
    findings = [_guarded(check) for check in (INSTALLED_CHECKS if installed.release() else CHECKS)]
    if as_json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            print(worded(f"{finding.name:{width}}  {finding.state:7}  {finding.detail}"))
    return 1 if any(finding.state == "missing" for finding in findings) else 0


def _guarded(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except Failure as failure:
        return Finding(check.__name__.strip("_").replace("_", " "), "missing", str(failure))


def _neap() -> Finding:
    """Says which Neap this is: installed, a checkout, or a copy of the sources."""
    tree = build.REPOSITORY
    current = installed.release()
    if current:
        return Finding("neap", "ok", f"installed from the wheel, {current.version} ({current.commit}), in {tree}")
    commit, changed = pxe.checkout_state(tree)
    more = f"{commit[:12]}{', with changes' if changed else ''}" if commit else "without git's history"
    kind = "copy of an installed Neap's sources" if installed.released() else "checkout"
    return Finding("neap", "ok", f"{kind}, {more}, in {tree}")


def _products() -> Finding:
    """Of an installed Neap: what it runs without building anything."""
    images = [build.image(name, preset) for name in build.applications() for preset in build.CROSS_PRESETS]
    programs = [program for crate in build.CRATES for program in crate.programs]
    lacking = [path.name for path in (*images, *programs) if not path.is_file()]
    if lacking:
        return Finding("products", "missing", f"not here: {', '.join(lacking)}; {installed.REINSTALL}")
    return Finding("products", "ok", f"{', '.join(build.applications())}; soft card, load generator, model machine")


def _system() -> Finding:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        name = "unknown"
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    detail = f"{name}, {platform.machine()}, {os.cpu_count()} cores, {memory_gb:.1f} GB, Python {platform.python_version()}"
    fits = platform.machine() == "x86_64" and memory_gb >= 2
    return Finding("system", "ok" if fits else "missing", detail if fits else f"{detail}: x86-64 with 2 GB or more is needed")


def _mirror() -> Finding:
    if installed.release() and qemu.find():
        with contextlib.suppress(Failure):
            return Finding("mirror", "ok", f"{mirror.debian_mirrors()[0]}, keyring {mirror.debian_keyring()}")
        return Finding("mirror", "later", "apt knows no Debian mirror; GRUB and the sources of the toolchain come from one")
    return Finding("mirror", "ok", f"{mirror.debian_mirrors()[0]}, keyring {mirror.debian_keyring()}")


def _disk() -> Finding:
    free_bytes = shutil.disk_usage(cache.root()).free
    needed = 0 if installed.release() or toolchain.find() else toolchain.NEEDED_BYTES
    enough = free_bytes > needed + (qemu.NEEDED_BYTES if installed.release() else 1_000_000_000)
    return Finding("disk", "ok" if enough else "missing", f"{free_bytes / 1e9:.1f} GB free in {cache.root()}")


def _packages(name: str, *groups: str) -> Callable[[], Finding]:
    def check() -> Finding:
        try:
            lacking = packages.missing(list(groups))
        except Failure as failure:
            if not installed.release():
                raise
            return Finding(name, "later", f"{failure}; {COMPILED}")
        if not lacking:
            return Finding(name, "ok", "all there")
        if installed.release():
            return Finding(name, "later", f"{COMPILED}: apt-get install --no-install-recommends {' '.join(lacking)}")
        return Finding(name, "later" if os.geteuid() == 0 else "missing", f"apt-get install --no-install-recommends {' '.join(lacking)}")

    check.__name__ = name
    return check


def _toolchain() -> Finding:
    found = toolchain.find()
    if found:
        return Finding("toolchain", "ok", str(found))
    work = toolchain.entry().path.with_suffix(".work")
    detail = "a build was stopped and will go on" if work.is_dir() else "will be built, about 13 minutes on two cores"
    return Finding("toolchain", "later", f"{COMPILED}: {detail}, or ./neap toolchain import FILE" if installed.release() else detail)


def _compiled_objects() -> Finding:
    settings = compile_cache.environment(build.REPOSITORY)
    off = "; switched off (CCACHE_DISABLE)" if "CCACHE_DISABLE" in settings else ""
    return Finding("compiled objects", "ok", f"kept by ccache in {settings['CCACHE_DIR']}, at most {settings['CCACHE_MAXSIZE']}{off}")


def _qemu() -> Finding:
    found = qemu.find()
    if found:
        version = qemu.version_of(found)
        return Finding("qemu", "ok", f"{version}{'' if version == qemu.TESTED else f' (tested: {qemu.TESTED})'}, {found[0]}")
    try:
        mirror.debian_mirrors()
    except Failure:
        return Finding("qemu", "missing", qemu.HINT)
    return Finding("qemu", "later", f"will be fetched from Debian's {qemu.BACKPORTS}; or {qemu.HINT}")


def _boot_programs() -> Finding:
    found = boot_programs.find()
    if found:
        return Finding("boot programs", "ok", ", ".join(f"{name} {version}" for name, version in found.versions().items()))
    return Finding("boot programs", "later", f"GRUB, iPXE and OVMF will be fetched from Debian's {boot_programs.SUITE} for ./neap pxe")


def _sources() -> Finding:
    return Finding("sources", "ok", ", ".join(f"{pin.name} {pin.version}" for pin in sources.pins(sources.PINS).values()))


def _rust() -> Finding:
    found = build.find_cargo()
    if found:
        return Finding("rust", "ok", found)
    state = "later" if os.geteuid() == 0 else "missing"
    return Finding("rust", state, f"apt-get install --no-install-recommends {' '.join(packages.rust_packages(['cargo', 'rustc']))}")


def _ports() -> Finding:
    taken = [str(host) for pairs in DEFAULT_FORWARDS.values() for host, _ in pairs if not port_is_free(host)]
    return Finding("ports", "ok", f"in use: {', '.join(taken)} (choose others with --forward)" if taken else "the default ones are free")


def _checkout() -> Finding:
    writable = os.access(Path(build.REPOSITORY), os.W_OK)
    return Finding("checkout", "ok" if writable else "missing", f"{build.REPOSITORY}{'' if writable else ' cannot be written to'}")


TEST_GROUPS = "host-tests python-tests tools-tests model-tests sim-tests browser-tests system-tests gdb style rustfmt".split()
CHECKS: list[Callable[[], Finding]] = [
    _neap,
    _system,
    _mirror,
    _disk,
    _checkout,
    _rust,
    _packages("packages to build", "build", "card"),
    _packages("packages for the toolchain", "toolchain"),
    _packages("packages for tests", *TEST_GROUPS),
    _toolchain,
    _compiled_objects,
    _qemu,
    _boot_programs,
    _sources,
    _ports,
]
# Of an installed Neap: first what running needs, then what only compiling needs.
COMPILED = "only for ./neap build, test, and applications of your own"
INSTALLED_CHECKS: list[Callable[[], Finding]] = [
    _neap,
    _system,
    _products,
    _qemu,
    _mirror,
    _disk,
    _ports,
    _boot_programs,
    _toolchain,
    _packages("packages to build", "build"),
    _packages("packages for the toolchain", "toolchain"),
    _packages("packages for tests", *TEST_GROUPS, "card", "rust"),
]
