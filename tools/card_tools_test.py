# SPDX-License-Identifier: BSL-1.0
"""The output of the soft card's fuzzers and of its benchmark is read correctly."""

import pytest

from tools import card_fuzz
from tools.bench import card
from tools.errors import Failure

LOG = """\
#2\tINITED cov: 300 ft: 301 corp: 1/1b exec/s: 0 rss: 30Mb
#99\tDONE   cov: 1486 ft: 6430 corp: 1361/117Kb lim: 1024 exec/s: 787 rss: 32Mb
Done 99 runs in 1 second(s)
stat::number_of_executed_units: 99
stat::peak_rss_mb:              32
"""
LINE = '{"way": "rx", "size": "64B", "queues": %d, "timers": %d, "nanoseconds": 100.5, "instructions": %s}'


def test_a_fuzzers_sums_are_read_and_their_lack_is_an_error() -> None:
    assert card_fuzz.read_log(LOG) == (99, 1486)
    with pytest.raises(Failure, match="no sums"):
        card_fuzz.read_log("Segmentation fault")


def test_growth_is_measured_against_one_queue_without_timers() -> None:
    text = "\n".join(
        ["   Compiling card", LINE % (1, 0, "200.0"), LINE % (1, 63, "202.0"), LINE % (128, 0, "204.0"), LINE % (128, 63, "230.0")]
    )
    rows = {row.name: row for row in card.read(text)}
    assert rows["card.rx.64B.queues_128.timers_63.instructions"].value == 230
    assert rows["card.rx.64B.growth"].value == pytest.approx(1.15) and rows["card.rx.64B.growth"].missed
    with pytest.raises(Failure, match="printed nothing"):
        card.read("   Compiling card")
    with pytest.raises(Failure, match="ptrace"):
        card.read(LINE % (1, 0, "null"))
