# SPDX-License-Identifier: BSL-1.0
"""The paths of the images that the tests in this folder boot, and of the soft card. NEAP_TARGET_IMAGES and NEAP_SOFT_CARD replace them."""

import os
from pathlib import Path

from tools import machine

BUILD = Path(os.environ.get("NEAP_TARGET_IMAGES", machine.REPOSITORY / "build/image-debug"))
APPLICATIONS = ("counters", "hello")
SOFT_CARD = Path(os.environ.get("NEAP_SOFT_CARD", machine.SOFT_CARD))


def image_path(name: str) -> Path:
    """Returns the path of the image of an application in APPLICATIONS, or of a test in this folder."""
    folder = f"apps/{name}" if name in APPLICATIONS else "tests/target"
    return BUILD / folder / f"{name}.elf"
