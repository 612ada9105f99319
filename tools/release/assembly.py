# SPDX-License-Identifier: BSL-1.0
"""Packs a stage that is built into the files of a release."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tools import boot_programs, cache, exchange, progress
from tools.release import boot_parts, changes, checks, debian_packages, inventory, licences, sbom, source_archive, wheel
from tools.release.stage import Stage

PARTS = ("toolchain", "documents", "wheel", "debs", "source")
CHECKSUMS = "SHA256SUMS"
CHANGES = "CHANGES.md"


def assemble(stage: Stage, out: Path, *, parts: Sequence[str] = PARTS, complete: bool = True) -> list[Path]:
    """Writes the files of a release into the folder `out`, which MUST exist. Returns their paths. `complete`: raises Failure if a product
    is missing; otherwise the product is left out."""
    boot = boot_parts.files(boot_programs.BootPrograms(stage.boot_programs)) if stage.boot_programs else {}
    products = {**stage.products(), **boot}
    if complete:
        checks.require_products(stage, products)
    products = {name: path for name, path in products.items() if path.is_file()}
    files: list[Path] = []
    archive = None
    if "toolchain" in parts:
        archive = out / wheel.toolchain_archive_name()
        with contextlib.redirect_stdout(io.StringIO()):  # it prints a path that the release does not keep
            exchange.export_toolchain(str(archive))
        files.append(archive)
    documents: dict[str, bytes] = {}
    if "documents" in parts:
        with progress.step("listing components and licences"):
            documents = write_documents(stage, boot, out)
            files += [out / name for name in (*documents, CHANGES)]
    if "wheel" in parts:
        with progress.step("writing the wheel"):
            files.append(wheel.write(stage, out, products, documents, archive))
    if "debs" in parts:
        with progress.step("writing Debian's packages"):
            files += debian_packages.write_packages(replace(stage, version=stage.debian_version), out)
    if "source" in parts:
        with progress.step("writing the sources"):
            files.append(source_archive.write(stage, out))
    files.append(write_checksums(out, files))
    return files


def write_documents(stage: Stage, boot: dict[str, Path], out: Path) -> dict[str, bytes]:
    """Writes the list of components, the licences and the changes. Returns the content of those that belong into the wheel, too."""
    listed = inventory.of(stage, boot)
    documents = {sbom.name(stage): sbom.document(stage, listed), licences.NAME: licences.text(stage, listed)}
    section = changes.section(stage.source("CHANGELOG.md").decode(), stage.version, snapshot=stage.snapshot)
    for name, content in {**documents, CHANGES: section.encode()}.items():
        (out / name).write_bytes(content)
    return documents


def write_checksums(out: Path, files: Sequence[Path]) -> Path:
    """Writes the hashes of all files, in the format of sha256sum."""
    made = out / CHECKSUMS
    made.write_text("".join(f"{cache.file_sha256(path)}  {path.name}\n" for path in sorted(files)))
    return made
