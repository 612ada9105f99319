# SPDX-License-Identifier: BSL-1.0
"""Whole systems, tested by third-party programs: real clients on the booted image, Linux's own driver on the soft card.

`./neap test system` builds the requirements and runs this. To check the tests themselves, `--stock` tests Debian's memcached instead of the
image. All traffic stays on loopback and inside QEMU's user network. Each module boots its machine once for all its tests.
"""

import os
import tempfile
from collections.abc import Iterator

import pytest
import servers
from linux_guest import guest_image
from linux_guest.driver import SOAKING, TRAFFIC_PORT
from linux_guest.guest import LinuxGuest
from servers import NeapServer, Server, StockServer

from tools.machine import CARD_KINDS, CARD_VARIABLE, DEFAULT_CARD, SOFT_CARD


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stock", action="store_true", help="test Debian's memcached instead of the image (protocol tests only)")

    parser.addoption("--card", choices=CARD_KINDS, default=DEFAULT_CARD, help="the card of the tests that name none")
    parser.addoption("--server-cores", type=int, default=1, metavar="N", help="cores of memcached in the tests that name no number")


def pytest_configure(config: pytest.Config) -> None:
    os.environ[CARD_VARIABLE] = config.getoption("--card")  # also for programs that the tests start
    servers.usual_cores = config.getoption("--server-cores")
    config.addinivalue_line("markers", "names_the_82599: about this card or its successors, so deselected with another --card")
    config.addinivalue_line("markers", "as_root: makes whole systems in folders, so deselected for other users")
    config.addinivalue_line("markers", "image_only: about the machine below the protocol, so deselected with --stock")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--card") != DEFAULT_CARD:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("names_the_82599")])
        items[:] = [item for item in items if not item.get_closest_marker("names_the_82599")]
    if os.geteuid() != 0:
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("as_root")])
        items[:] = [item for item in items if not item.get_closest_marker("as_root")]
    if not config.getoption("--stock"):
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("image_only")])
    items[:] = [item for item in items if not item.get_closest_marker("image_only")]


@pytest.fixture(scope="session")
def stock(request: pytest.FixtureRequest) -> bool:
    """True if Debian's memcached replaces the image."""
    return request.config.getoption("--stock")


@pytest.fixture(scope="session")
def _shared_server(stock: bool) -> Iterator[Server]:
    # With this limit, a hundred values of 1 MiB fit in addition to all other values of the tests.
    server: Server = StockServer("-m", "256") if stock else NeapServer(memory="512M", arguments=["memory=256M"])
    with server:
        yield server


@pytest.fixture
def server(_shared_server: Server) -> Iterator[Server]:
    """The shared memcached. It must still serve after each test."""
    yield _shared_server
    _shared_server.check()


@pytest.fixture(scope="session")
def linux_image() -> guest_image.GuestImage:
    """Kernel and initramfs of the Linux guest: Debian 12's kernel, or Debian 13's in `./neap soak`. The soft card must be built."""
    if not SOFT_CARD.is_file():
        pytest.fail("the soft card is not built: ./neap test system builds it", pytrace=False)
    return guest_image.build(debian_13_kernel=SOAKING)


@pytest.fixture(scope="module")
def guest(linux_image: guest_image.GuestImage) -> Iterator[LinuxGuest]:
    """Linux with four cores on the soft card, before its driver is loaded."""
    with LinuxGuest(linux_image, cores=4, forward_ports=[5001, 5002, TRAFFIC_PORT]) as machine:
        yield machine


@pytest.fixture
def own_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A private directory for runs, so that the name `memcached` means this test's run. It is in /tmp, as a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="neap-test-", dir="/tmp") as place:
        monkeypatch.setenv("XDG_RUNTIME_DIR", place)
        yield
