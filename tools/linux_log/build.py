# SPDX-License-Identifier: BSL-1.0
"""Builds neap-trace: one static program with the BPF object inside, which runs on each Linux with BTF (docs/linux-log.md).

Debian's clang compiles the BPF programs, and the host's gcc links the program with Debian's libbpf. These packages are unpacked into the
cache, not installed. The result is in the cache under a hash of the packages' versions and of this folder's files.
"""

import json
import shutil
from pathlib import Path

from tools import build, cache, debian
from tools.process import output_of

HERE = Path(__file__).parent
FORMAT = HERE.parent / "log" / "format.json"
PLACE = build.BUILD / "neap-trace"
LIBRARY_PACKAGES = ("libbpf-dev", "libelf-dev", "zlib1g-dev", "linux-libc-dev")
BPF_PROGRAMS = HERE / "neap_trace.bpf.c"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
C_OPTIONS = ("-std=gnu17", "-D_GNU_SOURCE=", "-O2", *WARNINGS)
# These are programs of their own.
NOT_LINKED = ("machine_main.c", "record_maker_check.c")
COMPILE_SECONDS = 120


def program() -> Path:
    """Returns the path of neap-trace. It is built if the cache lacks it. Raises Failure."""
    clang = debian.dependency("clang", r"clang-\d")
    packages = [clang, *LIBRARY_PACKAGES]
    versions = debian.digest_of(debian.resolve(debian.with_libraries(packages)))
    sources = sorted(path for path in HERE.iterdir() if path.suffix in (".c", ".h", ".py") and not path.stem.endswith("_test"))
    entry = cache.Entry("neap-trace", cache.digest(versions, FORMAT.read_bytes(), *(path.read_bytes() for path in sources)))
    with entry.making() as needed:
        if needed:
            _build(debian.unpacked(*packages), clang, entry.path)
    return entry.path / "neap-trace"


def place() -> Path:
    """Builds neap-trace and copies it to build/neap-trace. Returns that path."""
    made = program()
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    making = PLACE.with_name(PLACE.name + ".new")
    shutil.copy2(made, making)
    making.rename(PLACE)
    return PLACE


def linked_sources() -> list[Path]:
    return sorted(path for path in HERE.glob("*.c") if not path.name.endswith(".bpf.c") and path.name not in NOT_LINKED)


def write_format_text(folder: Path) -> None:
    """Writes format_text.h: the parts of a log's header that are the same as Neap's."""
    types = json.loads(FORMAT.read_text())
    others = {name: text for name, text in types["fields"].items() if name != "record"}
    texts = {
        "FLAGS_TEXT": _compact(types["flags"]),
        "LINES_TEXT": _compact(types["lines"]),
        "OTHER_FIELDS_TEXT": _compact(others)[1:-1],
    }
    lines = [f"#define {name} {json.dumps(text)}" for name, text in texts.items()]
    (folder / "format_text.h").write_text("\n".join(["#pragma once", *lines, ""]))


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _build(root: Path, clang: str, out: Path) -> None:
    includes = ["-isystem", str(root / "usr/include"), "-isystem", str(root / "usr/include/x86_64-linux-gnu")]
    bpf_object = out / "neap_trace.bpf.o"
    options = ["--target=bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-D__TARGET_ARCH_x86"]
    compiler = [*_clang(root, clang), *options, *includes]
    output_of([*compiler, "-c", str(BPF_PROGRAMS), "-o", str(bpf_object)], timeout_seconds=COMPILE_SECONDS)
    write_format_text(out)
    defines = [f'-DNEAP_TRACE_OBJECT="{bpf_object}"', "-I", str(out), "-I", str(HERE)]
    # Only the packages' own headers come from the packages. gcc's C library is the host's.
    for folder in ("bpf", "libelf.h", "gelf.h"):
        (out / "include").mkdir(exist_ok=True)
        (out / "include" / folder).symlink_to(root / "usr/include" / folder)
    libraries = root / "usr/lib/x86_64-linux-gnu"
    static = [str(libraries / name) for name in ("libbpf.a", "libelf.a", "libz.a", "libzstd.a") if (libraries / name).is_file()]
    command = ["gcc", *C_OPTIONS, *defines, "-isystem", str(out / "include"), "-static", *map(str, linked_sources()), *static]
    output_of([*command, "-s", "-o", str(out / "neap-trace")], timeout_seconds=COMPILE_SECONDS)


def _clang(root: Path, clang: str) -> list[str]:
    """Returns the command that starts the unpacked clang with its own libraries and headers."""
    version = clang.rpartition("-")[2]
    base = root / f"usr/lib/llvm-{version}"
    resources = next((base / "lib/clang").iterdir())
    return [*debian.started_in(root, base / "bin/clang"), "-resource-dir", str(resources)]
