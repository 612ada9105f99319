# SPDX-License-Identifier: BSL-1.0
import zipfile
from pathlib import Path

import pytest

from tools.release import comparison


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_bytes(b"x" * 3_000_000)
        with zipfile.ZipFile(tmp_path / name / "b.whl", "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("first"), "1")
            wheel.writestr(zipfile.ZipInfo("second"), "2")
    return tmp_path / "one", tmp_path / "two"


def test_equal_folders_have_no_difference(folders: tuple[Path, Path]) -> None:
    assert comparison.difference(*folders) is None


def test_the_first_byte_that_differs_is_named(folders: tuple[Path, Path]) -> None:
    (folders[1] / "a").write_bytes(b"x" * 2_000_000 + b"y" + b"x" * 999_999)
    assert comparison.difference(*folders) == "a differs at byte 2000000"
    (folders[1] / "a").write_bytes(b"x" * 2_500_000)
    assert comparison.difference(*folders) == "a differs at byte 2500000"


def test_the_member_of_a_wheel_that_differs_is_named(folders: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(folders[1] / "b.whl", "w") as wheel:
        wheel.writestr(zipfile.ZipInfo("first"), "1")
        wheel.writestr(zipfile.ZipInfo("second"), "3")
    assert comparison.difference(*folders) == "b.whl differs in second"


def test_a_file_of_one_build_alone_is_named(folders: tuple[Path, Path]) -> None:
    (folders[0] / "c").write_text("")
    assert comparison.difference(*folders) == "only one build has c"
