# SPDX-License-Identifier: BSL-1.0
"""Neap's instructions are counted exactly, by two counters. The rows of Linux take minutes, so only `./neap bench counts` has them."""

from tools import build
from tools.bench import counts
from tools.model import experiment


def test_neap_s_instructions_are_counted_exactly():
    found = [*counts.known_on_neap(), *counts.of_system("neap", experiment.System(build.image("memcached")))]
    assert [row.name.rpartition(".")[2] for row in found] == ["known", "second_counter", "second_counter_changes", "seeds", "other"]
    assert not [row for row in found if row.missed]
