# SPDX-License-Identifier: BSL-1.0
"""mutilate, the load generator that published studies used: fetched at a pinned commit and built into the cache.

No distribution packages it, and its build script needs a Python version that is no longer available. It consists of eight C++ files.
Agents, which need ZeroMQ, are left out. git checks the fetched files against the commit's hash; a checksum of the resulting files is
checked as well.
"""

import hashlib
import subprocess
from pathlib import Path

from tools import cache, debian, packages, progress
from tools.errors import Failure
from tools.process import output_of, run_logged

SOURCE = "https://github.com/leverich/mutilate"
COMMIT = "d65c6ef7c2f78ae05a9db3e37d7f6ddff1c0af64"
# Covers the names and contents of all its files, see _checksum().
SHA256 = "8f54071c02c808654afcdbb668381769852e50750fd7dc1116f6730bf7e01cf3"
FILES = "mutilate.cc cmdline.cc log.cc distributions.cc util.cc Connection.cc Protocol.cc Generator.cc".split()
CONFIGURATION = "".join(
    f"#define {name} 1\n" for name in ("HAVE_CLOCK_GETTIME", "HAVE_PTHREAD_BARRIER_INIT", "HAVE_DECL_EVENT_BASE_FLAG_PRECISE_TIMER")
)
FETCH_SECONDS = 120
BUILD_SECONDS = 600


def command() -> list[str]:
    """mutilate's command line. Builds mutilate if necessary. Raises Failure if its source or a build dependency is not available."""
    root = debian.unpacked("gengetopt", "libevent-dev")
    entry = cache.Entry("mutilate", cache.digest(COMMIT, str(root), Path(__file__).read_bytes()))
    with entry.making() as needed:
        if needed:
            packages.require("mutilate")
            with progress.step("fetching and building mutilate"):
                _make(root, entry.path)
    return debian.started_in(root, entry.path / "tree/mutilate")


def _make(root: Path, place: Path) -> None:
    log, tree = place / "make.log", place / "tree"
    tree.mkdir()
    for words in (["init", "-q"], ["fetch", "-q", "--depth=1", SOURCE, COMMIT], ["checkout", "-q", "FETCH_HEAD"]):
        run_logged(["git", "-C", str(tree), *words], log, f"git {words[0]} of mutilate", timeout_seconds=FETCH_SECONDS)
    if (found := _checksum(tree)) != SHA256:
        raise Failure(f"checksum of mutilate's source is wrong: {found[:16]}…, pinned is {SHA256[:16]}…")
    (tree / "config.h").write_text(CONFIGURATION)
    with open(tree / "cmdline.ggo") as options:
        argv = [*debian.started_in(root, root / "usr/bin/gengetopt"), "--output-dir", str(tree)]
        done = subprocess.run(argv, stdin=options, capture_output=True, text=True, timeout=BUILD_SECONDS)
    if done.returncode != 0:
        raise Failure(f"gengetopt: {done.stderr.strip()[-200:]}")
    headers = [f"-I{root / folder}" for folder in ("usr/include", "usr/include/x86_64-linux-gnu")]
    argv = ["g++", "-std=c++11", "-D_GNU_SOURCE", "-D__STDC_FORMAT_MACROS", "-O3", "-w", *headers, "-o", "mutilate", *FILES]
    run_logged(
        [*argv, str(root / "usr/lib/x86_64-linux-gnu/libevent.so"), "-lpthread"],
        log,
        "building mutilate",
        cwd=tree,
        timeout_seconds=BUILD_SECONDS,
    )


def _checksum(tree: Path) -> str:
    """SHA-256 over its files by name: length and bytes of name and content."""
    total = hashlib.sha256()
    for name in sorted(output_of(["git", "-C", str(tree), "ls-files", "-z"]).split("\0")):
        if name:
            for data in (name.encode(), (tree / name).read_bytes()):
                total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()
