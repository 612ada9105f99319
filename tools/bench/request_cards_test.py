# SPDX-License-Identifier: BSL-1.0
import io
from collections import Counter

import pytest

from tools import build
from tools.bench import burst_client, request, request_cards
from tools.bench.rows import Row, Selection
from tools.model import profile


def test_each_source_of_the_drivers_is_in_the_layer_driver() -> None:
    for folder in ("drivers/virtio", "drivers/ixgbe"):
        sources = [str(path.relative_to(build.REPOSITORY)) for path in (build.REPOSITORY / folder).glob("*.?pp")]
        assert sources and {profile.layer_of(source) for source in sources} == {"driver"}


def measured(driver: str, counts: dict[tuple[str, str], int]) -> request_cards.Measured:
    sites = Counter({profile.Site(function, file): count for (function, file), count in counts.items()})
    return request_cards.Measured(profile.Profile(sites, Counter()), 10, 1, 10, "csum" if driver == "virtio" else "")


def test_the_layers_of_both_cards_are_side_by_side() -> None:
    virtio = measured("virtio", {("neap::virtio::Ring::take", "drivers/virtio/ring.hpp"): 500, ("f", "net/stack.cpp"): 1000})
    reference = measured("ixgbe", {("neap::ixgbe::take", "drivers/ixgbe/ring.hpp"): 200, ("g", "lwip/core/tcp.c"): 100})
    assert request_cards.layers("name", virtio, reference).splitlines() == [
        "name: layer  virtio-net  82599  the largest functions of virtio-net; of the 82599",
        "stack glue          100      0  f 100;",
        "driver               50     20  take 50; take 20",
        "lwIP                  0     10  ; g 10",
        "all                 150     30",
    ]


def test_the_rows_are_measured_only_if_they_are_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def of(name: str):
        def rows(_image: object) -> list[Row]:
            asked.append(name)
            request_cards.shown.append(f"the layers of {name}")
            return [Row(f"request.{name}", "instructions", 1.0)]

        return rows

    monkeypatch.setattr(request.modelled, "prepare", lambda *_: None)
    for name in request_cards.ROWS:
        monkeypatch.setitem(request.FURTHER, name, of(name))
    assert [row.name for row in request.rows(Selection(["get.16.virtio"]))] == ["request.get.16.virtio"]
    assert asked == ["get.16.virtio"] and request.show([]).endswith("\n\nthe layers of get.16.virtio")
    request.rows(Selection(["get.16.virtio_*"]))
    assert asked[1:] == ["get.16.virtio_user_network"] and request_cards.shown == ["the layers of get.16.virtio_user_network"]


class Connection(io.BytesIO):
    """The end of a connection that receives its content in pieces of three bytes."""

    def sendall(self, _request: bytes) -> None:
        pass

    def recv(self, _bytes_max: int) -> bytes:
        return self.read(3)


def test_the_client_ends_with_an_error_after_a_wrong_reply() -> None:
    burst_client.exchange(Connection(b"END\r\n"), b"", b"END\r\n")
    for wrong in (b"ENT\r\n", b"END", b"", b"END\r\n?"):
        with pytest.raises(SystemExit, match="a wrong reply"):
            burst_client.exchange(Connection(wrong), b"", b"END\r\n")
