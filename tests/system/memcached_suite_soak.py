# SPDX-License-Identifier: BSL-1.0
"""`./neap soak suite`: the files of memcached's own tests that take too long for `./neap test` (memcached_suite_test.py)."""

from pathlib import Path

import pytest
from memcached_suite_test import IN_SOAK, expect, run, suite

__all__ = ["suite"]  # a fixture
SECONDS = 1500


@pytest.mark.parametrize("name", IN_SOAK)
def test_memcached_suite_in_soak(suite: Path, name: str) -> None:  # noqa: F811
    expect(run(suite, name, SECONDS))
