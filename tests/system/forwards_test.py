# SPDX-License-Identifier: BSL-1.0
"""The ports of the host that lead to ports of the machine (tools/machine.py)."""

import pytest

from tools import build
from tools.machine import Machine, free_port, port_is_free

pytestmark = pytest.mark.image_only


def test_forwards_keep_their_order_and_get_different_host_ports() -> None:
    given = free_port()
    with Machine(build.image("hello"), forward=[(0, 80), (given, 443), (0, 80), (0, 5002)]) as machine:
        assert [guest for _, guest in machine.forward] == [80, 443, 80, 5002] and machine.port(443) == given
        hosts = {host for host, _ in machine.forward}
        assert len(hosts) == 4 and not any(port_is_free(host) for host in hosts)
        with pytest.raises(KeyError):
            machine.port(81)
