# SPDX-License-Identifier: BSL-1.0
"""The launcher's name in messages: `./neap` in a checkout, `neap` if Neap is installed.

Messages and help texts are written for a checkout. `worded` is the one place that changes them for an installed Neap. Errors, progress
lines and the command line's help pass through it.
"""

import re
from pathlib import Path

# At the top of an installed tree, and of the copy of the sources that an installed Neap makes (installed.py).
RELEASE_FILE = "release.json"
NAME = "neap" if (Path(__file__).resolve().parent.parent / RELEASE_FILE).is_file() else "./neap"
# A path that ends in ./neap names a file, not this program.
_IN_A_CHECKOUT = re.compile(r"(?<![\w./-])\./neap\b(?!/)")


def worded(text: str) -> str:
    """Returns a message with the launcher's name as the user types it."""
    return _IN_A_CHECKOUT.sub(NAME, text)
