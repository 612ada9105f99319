# SPDX-License-Identifier: BSL-1.0
"""Packs a stage that is built into the files of a release."""

from collections.abc import Sequence
from pathlib import Path

from tools import boot_programs, exchange, progress
from tools.errors import Failure
from tools.release import boot_parts, wheel
from tools.release.stage import PLUGIN, Stage

PARTS = ("toolchain", "wheel", "debs", "source")


def assemble(stage: Stage, out: Path, *, parts: Sequence[str] = PARTS, complete: bool = True) -> list[Path]:
    """Writes the files of a release into the folder `out`, which MUST exist. Returns their paths. `complete`: raises Failure if a product
    is missing; otherwise the product is left out."""
    files: list[Path] = []
    archive = None
    if "toolchain" in parts:
        archive = out / wheel.toolchain_archive_name()
        exchange.export_toolchain(str(archive))
        files.append(archive)
    if "wheel" in parts:
        boot = boot_parts.files(boot_programs.BootPrograms(stage.boot_programs)) if stage.boot_programs else {}
        if complete:
            require_products(stage, boot)
        products = {name: path for name, path in {**stage.products(), **boot}.items() if path.is_file()}
        with progress.step("writing the wheel"):
            files.append(wheel.write(stage, out, products, {}, archive))
    return files


def require_products(stage: Stage, boot: dict[str, Path]) -> None:
    """Raises Failure if a product of the wheel is missing."""
    missing = [name for name, path in stage.products().items() if not path.is_file()]
    if not any(name.startswith(f"build/{PLUGIN}/") for name in stage.products()):
        missing.append(f"build/{PLUGIN}/{PLUGIN}-*.so")
    if not boot:
        missing.append("build/boot-programs")
    if missing:
        raise Failure(f"{stage.tree} has not built {', '.join(missing)}", "./neap release builds all of them")
