# SPDX-License-Identifier: BSL-1.0
"""Third-party sources that come as Python source distributions.

Some C and C++ libraries have no package in the build's Debian release, or an older one. Python packages that wrap them carry their
sources. Such a package is downloaded with the machine's own pip, which knows the machine's index and proxy, and is never installed. A pin
in toolchain/sources.toml has its version and SHA-256 (tools/sources.py).
"""

import sys
from pathlib import Path

from tools import cache
from tools.errors import Failure
from tools.process import finished, run_logged

DOWNLOAD_SECONDS = 900
UNPACK_SECONDS = 300


def pip_command(holding: Path, log: Path) -> list[str]:
    """Returns the command words of a pip: that of this Python, or else that of a virtual environment made in `holding`."""
    if finished([sys.executable, "-m", "pip", "--version"]).returncode == 0:
        return [sys.executable, "-m", "pip"]
    environment = holding / "pip"
    run_logged([sys.executable, "-m", "venv", str(environment)], log, "python -m venv", timeout_seconds=300)
    return [str(environment / "bin/python"), "-m", "pip"]


def fetch(package: str, version: str, sha256: str, into: Path, log: Path) -> Path:
    """Downloads a source distribution into a directory and returns its path. Raises Failure, and leaves no file, if its hash differs."""
    into.mkdir(parents=True, exist_ok=True)
    words = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", package, f"{package}=={version}"]
    try:
        run_logged(
            [*pip_command(into, log), *words, "--dest", str(into)], log, f"fetching {package} {version}", timeout_seconds=DOWNLOAD_SECONDS
        )
    except Failure as failure:
        raise Failure(
            f"pip cannot fetch the source of {package} {version}",
            f"see {log}; pip needs an index that has it: set PIP_INDEX_URL, or PIP_PROXY, as for other Python packages",
            failure.details,
        ) from None
    files = sorted(into.glob("*.tar.gz"))
    if len(files) != 1:
        raise Failure(f"pip fetched {len(files)} source archives of {package} {version}, not one", f"see {log}")
    actual = cache.file_sha256(files[0])
    if actual != sha256:
        cache.remove(files[0])
        raise Failure(
            f"checksum of {files[0].name} is wrong: {actual[:16]}…, pinned is {sha256[:16]}…",
            "the download was removed; start again, and if it stays so, the index does not serve what Neap was tested with",
        )
    return files[0]


def unpack(file: Path, into: Path, log: Path) -> None:
    """Unpacks a source distribution as the content of `into`."""
    cache.remove(into)
    into.mkdir(parents=True)
    argv = ["tar", "-C", str(into), "--strip-components=1", "-xzf", str(file)]
    run_logged(argv, log, f"unpacking {file.name}", timeout_seconds=UNPACK_SECONDS)
