#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Starts rustc for cargo, with names of our own crates that do not depend on the folder of the sources.

rustc makes symbols unique by `-C metadata`. cargo derives this word from a crate's source. For a crate outside of the workspace, as `card`
is for `world`, that is the absolute path, so a program would differ in each folder. Here the word is made from the path in the repository,
and from the other words that tell two builds of one crate apart.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
METADATA = "metadata="
DIGITS = 16
DISTINGUISHING = ("--crate-name", "--crate-type", "--target", "--cfg", "--edition")


def rewritten(words: Sequence[str], environment: Mapping[str, str], repository: Path) -> list[str]:
    """Returns rustc's words. Only `-C metadata` of a crate below `repository` is replaced."""
    manifest = Path(environment.get("CARGO_MANIFEST_DIR", "/"))
    if not manifest.is_relative_to(repository):
        return list(words)
    identity = [str(manifest.relative_to(repository)), environment.get("CARGO_PKG_VERSION", "")]
    for option, value in zip(words, [*words[1:], ""]):
        name, _, joined = option.partition("=")
        if name in DISTINGUISHING:
            identity += [name, joined or value]
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:DIGITS]
    return [f"{METADATA}{digest}" if word.startswith(METADATA) else word for word in words]


if __name__ == "__main__":
    os.execv(sys.argv[1], [sys.argv[1], *rewritten(sys.argv[2:], os.environ, REPOSITORY)])
