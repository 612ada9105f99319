# SPDX-License-Identifier: BSL-1.0
"""A real client, pymemcache, with fifty connections at once. stock_clients_test.py has the calls of all clients."""

from mixed_load import run_mixed_load
from servers import Server

CONNECTIONS = 50
OPERATIONS = 20_000
LARGE_VALUES = 100


def test_fifty_connections_lose_and_mix_up_nothing(server: Server) -> None:
    workers = run_mixed_load(server, connections=CONNECTIONS, operations=OPERATIONS, large_values=LARGE_VALUES)
    keys = [key for worker in workers for key in worker.stored]
    assert sum(key.startswith("large-") for key in keys) == LARGE_VALUES
    assert sum(worker.compared for worker in workers) > OPERATIONS // 2
    with server.connect() as wire:
        assert int(wire.statistics()["curr_items"]) >= len(keys)
