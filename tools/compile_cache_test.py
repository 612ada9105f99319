# SPDX-License-Identifier: BSL-1.0
import subprocess
from pathlib import Path

import pytest

from tools import compile_cache
from tools.process import finished

OPTIONS = "cmake/neap_options.cmake"


@pytest.fixture
def ours(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an environment without settings of the user. Returns ccache's store."""
    for name in compile_cache.environment(Path("/")):
        if name.startswith(("CCACHE_", "CMAKE_")):
            monkeypatch.delenv(name, raising=False)
    return own_cache / "ccache"


def compiled(checkout: Path, options: str = "") -> tuple[bytes, int]:
    """Compiles a checkout's only source as the presets do. Returns the object, and how many objects ccache has taken from its store."""
    (checkout / "build/image").mkdir(parents=True, exist_ok=True)
    (checkout / "cmake").mkdir(exist_ok=True)
    (checkout / OPTIONS).write_text(options)
    (checkout / "main.c").write_text('#include "name.h"\n')
    (checkout / "name.h").write_text("const char* name(void) { return __FILE__; }\n")
    environment = compile_cache.environment(checkout)
    maps = [f"-ffile-prefix-map={old}=." for old in ("../..", checkout)]
    argv = ["ccache", "gcc", "-g", *maps, "-I", str(checkout), "-c", "-o", "main.o", str(checkout / "main.c")]
    subprocess.run(argv, cwd=checkout / "build/image", env=environment, check=True, timeout=60)
    counts = dict(line.split("\t") for line in finished(["ccache", "--print-stats"], env=environment, check=True).stdout.splitlines())
    return (checkout / "build/image/main.o").read_bytes(), int(counts["direct_cache_hit"]) + int(counts["preprocessed_cache_hit"])


def test_a_second_checkout_takes_objects_of_the_first(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, hits = compiled(tmp_path / "a place")
    assert hits == 0 and ours.is_dir() and str(tmp_path).encode() not in first
    assert compiled(tmp_path / "another") == (first, 1)
    monkeypatch.setenv("CCACHE_DISABLE", "1")
    assert compiled(tmp_path / "third") == (first, 1), "the compiler's own object is the same one"


def test_the_mapping_of_paths_is_part_of_an_objects_identity(ours: Path, tmp_path: Path) -> None:
    compiled(tmp_path / "a place")
    assert compiled(tmp_path / "a place", "# other maps")[1] == 0


def test_settings_of_the_user_stay(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(compile_cache.launchers()) == 2 and compile_cache.environment(Path("/c"))["CCACHE_BASEDIR"] == "/c"
    monkeypatch.setenv("CMAKE_CXX_COMPILER_LAUNCHER", "distcc")
    monkeypatch.setenv("CCACHE_DIR", "/elsewhere")
    assert compile_cache.launchers() == ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"]
    assert compile_cache.environment(Path("/c"))["CCACHE_DIR"] == "/elsewhere"
