# SPDX-License-Identifier: BSL-1.0
import subprocess
from pathlib import Path

import pytest

from tools.errors import Failure
from tools.release import boot_parts, checks
from tools.release.stage import Stage


@pytest.fixture
def products(stage: Stage, tmp_path: Path) -> dict[str, Path]:
    """A stage's products, with a static program in the place of each program in Rust."""
    static = tmp_path / "static"
    source = tmp_path / "empty.c"
    source.write_text("void _start(void) { for (;;) {} }\n")
    subprocess.run(["gcc", "-nostdlib", "-static", "-o", str(static), str(source)], check=True, timeout=60)
    for program in (stage.soft_card, stage.load, stage.load_stub, stage.world):
        program.write_bytes(static.read_bytes())
    return {**stage.products(), f"{boot_parts.PLACE}/versions": tmp_path / "empty.c"}


def test_products_without_paths_and_libraries_pass(stage: Stage, products: dict[str, Path]) -> None:
    checks.require_products(stage, products)


def test_a_path_of_the_stage_in_a_product_is_found(stage: Stage, products: dict[str, Path]) -> None:
    image = stage.tree / "build/image/apps/hello/hello.elf"
    image.write_bytes(b"\0" * 100 + str(stage.tree / "kernel/panic.cpp").encode() + b"\0")
    with pytest.raises(Failure, match="build/image/apps/hello/hello.elf contains the path"):
        checks.require_products(stage, products)


def test_a_dynamic_program_is_found(stage: Stage, products: dict[str, Path]) -> None:
    stage.load.write_bytes(Path("/bin/sh").read_bytes())
    with pytest.raises(Failure, match="neap-load is linked dynamically"):
        checks.require_products(stage, products)


@pytest.mark.parametrize("missing", ["build/image-debug/apps/hello/hello.elf", "build/machine", "build/boot-programs"])
def test_a_missing_product_is_named(stage: Stage, products: dict[str, Path], missing: str) -> None:
    for name, path in stage.products().items():
        if name.startswith(missing):
            path.unlink()
    left = {name: path for name, path in products.items() if not name.startswith(missing) or name.endswith(".elf")}
    with pytest.raises(Failure, match=f"has not built {missing}"):
        checks.require_products(stage, left)


def test_a_file_that_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\n")
    with pytest.raises(Failure, match="is no 64-bit ELF file"):
        checks.is_dynamic(tmp_path / "text")
