# SPDX-License-Identifier: BSL-1.0
"""Our image on the soft card's models X540 and X550: memcached stores and returns values, over a link that goes and comes back.

The rest of the suite runs on the 82599. Per-frame code is the same for all models; they differ at the start (drivers/ixgbe/model.hpp).
"""

import random
import time

import pytest
from servers import NeapServer

pytestmark = [pytest.mark.image_only, pytest.mark.names_the_82599]

CORES = 4
CLIENTS = 24
LINK_SECONDS = 60


MODELS = [("x540", "0x1528"), ("x550", "0x1563")]


@pytest.mark.parametrize(("model", "device"), MODELS)
def test_memcached_serves_on_the_model(model: str, device: str) -> None:
    with NeapServer(memory="512M", cores=CORES, card_options=["--model", model]) as server:
        machine = server.machine
        assert any(line.startswith(f"ixgbe: {model.upper()} {device} ") for line in machine.lines), machine.lines[-20:]
        values = {b"key-%d" % i: random.Random(i).randbytes(1 + i * 997) for i in range(CLIENTS)}
        # Each connection has a port of its own, so RSS spreads them over the cores.
        for key, value in values.items():
            server.connect().store(key, value)
        for key, value in values.items():
            assert server.connect().fetch(key) == value
        # Every core has received frames, so the whole RSS table is in use.
        received = [machine.card_command("statistics").get(f"rx_frames[{queue}]") for queue in range(CORES)]
        machine.card_command("link down")
        machine.wait_for_line("ixgbe: link down", LINK_SECONDS)
        machine.card_command("link up")
        machine.wait_for_line(r"ixgbe: link up, 10000 Mb/s", LINK_SECONDS)
        deadline = time.monotonic() + LINK_SECONDS
        assert server.connect(deadline - time.monotonic()).fetch(b"key-7") == values[b"key-7"]
        assert machine.card_command("violations")["total"] == 0
        assert all(received), received


# The X550 has no DCA. Without a chipset that has it, the other models refuse it for another reason.
@pytest.mark.parametrize(("model", "refusal"), [("x540", "CPU"), ("x550", "X550")])
def test_dca_is_refused_where_there_is_none(model: str, refusal: str) -> None:
    with NeapServer(card_options=["--model", model]) as server, server.control() as control:
        answer = control.ask("dca,on")
        assert answer.startswith("error") and refusal in answer, answer


def test_a_corrupt_eeprom_of_the_x540_is_reported() -> None:
    with NeapServer(card_options=["--model", "x540", "--fault", "eeprom"]) as server:
        assert any("EEPROM's checksum is 0x" in line for line in server.machine.lines)
