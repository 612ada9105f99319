# SPDX-License-Identifier: BSL-1.0
"""The words of Linux on the model machine, and what is refused."""

import pytest

from tools.errors import UsageError
from tools.model import linux


def test_words_become_those_of_the_kernel_and_of_the_start_script() -> None:
    assert linux.settings(["itr=8us", "pstate=12", "idle=c1"]) == [
        "intel_pstate=disable",
        "neap.itr=8",
        "neap.ratio=12",
        "intel_idle.max_cstate=1",
    ]


def test_a_governor_needs_the_driver_of_the_frequency() -> None:
    assert linux.settings(["itr=16us", "governor=performance"]) == ["intel_pstate=passive", "neap.itr=16", "neap.governor=performance"]
    assert linux.settings(linux.DYNAMIC) == ["intel_pstate=passive", "neap.itr=adaptive", "neap.governor=schedutil"]


def test_trace_off_leaves_no_word() -> None:
    assert linux.settings(["trace=off"]) == linux.settings([])
    assert "neap.trace=on" in linux.settings(["trace=on"])


def test_a_script_of_node_is_served_in_place_of_memcached() -> None:
    words = linux.kernel_words("10.0.0.2/24", ["itr=16us"], linux.web_server("hello"))
    assert {"neap.run=web", "neap.script=hello", "neap.itr=16"} <= set(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["itr=1us"], "2us to 1022us or adaptive"),
        (["itr=automatic"], "or adaptive on Linux"),
        (["governor=ondemand"], "performance schedutil"),
        (["governor="], "performance schedutil"),
        (["trace=yes"], "on or off"),
        (["pstate=12", "governor=schedutil"], "would change"),
        (["itr=8us", "itr=adaptive"], "is there twice"),
        (["tso=on"], "takes the words itr, pstate, governor, idle, trace"),
    ],
)
def test_words_that_cannot_be_are_refused_in_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        linux.settings(words)
