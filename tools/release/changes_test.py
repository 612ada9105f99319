# SPDX-License-Identifier: BSL-1.0
import pytest

from tools.conftest import REPOSITORY
from tools.errors import Failure
from tools.release import changes, version

LOG = "# Changes\n\n## 1.10.0, unreleased\n- Ten.\n\n## 1.1.0, 2026-01-01\n- One.\n- Two.\n\n## 1.0.0, 2025-01-01\n\n## 0.9.0\n- Nine.\n"


def test_a_section_ends_before_the_next_version() -> None:
    assert changes.section(LOG, "1.1.0", snapshot=False) == "## 1.1.0, 2026-01-01\n- One.\n- Two.\n"
    assert changes.section(LOG, "0.9.0", snapshot=False) == "## 0.9.0\n- Nine.\n"


@pytest.mark.parametrize(
    ("wanted", "message"), [("1.1", "no section '## 1.1, DATE'"), ("1.0.0", "says nothing about 1.0.0"), ("1.10.0", "as unreleased")]
)
def test_a_version_without_changes_is_not_released(wanted: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        changes.section(LOG, wanted, snapshot=False)


def test_a_snapshot_may_be_unreleased() -> None:
    assert changes.section(LOG, "1.10.0", snapshot=True).endswith("- Ten.\n")


def test_this_checkout_has_one_version_and_its_changes() -> None:
    found = version.require_equal(REPOSITORY)
    assert changes.section((REPOSITORY / "CHANGELOG.md").read_text(), found, snapshot=True)
    assert set(version.repeated(REPOSITORY)) >= {"CITATION.cff", "sim/world/Cargo.toml", "bench/load/Cargo.toml"}
