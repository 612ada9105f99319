# SPDX-License-Identifier: BSL-1.0
"""The attacks by name, in the order of the rows of docs/threat-model.md."""

from hostile import crowd_attacks, memcached_attacks, network_attacks
from hostile.attack import Attack

ATTACKS: dict[str, type[Attack]] = {
    "long_gets": memcached_attacks.LongGets,
    "long_pieces": memcached_attacks.LongPieces,
    "pending_requests": memcached_attacks.PendingRequests,
    "replacements": memcached_attacks.Replacements,
    "pinned_replies": memcached_attacks.PinnedReplies,
    "colliding_keys": memcached_attacks.CollidingKeys,
    "other_sizes": memcached_attacks.OtherSizes,
    "forged_segments": network_attacks.ForgedSegments,
    "slow_readers": memcached_attacks.SlowReaders,
    "syn_flood": network_attacks.SynFlood,
    "control_crowd": network_attacks.ControlCrowd,
    "short_leases": network_attacks.ShortLeases,
    "crowd": crowd_attacks.Crowd,
    "large_readers": crowd_attacks.LargeReaders,
    "vanishing_clients": crowd_attacks.VanishingClients,
    "full_memory": crowd_attacks.FullMemory,
    "full_memory_without_eviction": crowd_attacks.FullMemoryWithoutEviction,
}

# The same attacks in the size of `./neap soak crowd`.
FULL_SIZE: dict[str, type[Attack]] = {
    "crowd": crowd_attacks.FullCrowd,
    "large_readers": crowd_attacks.FullLargeReaders,
    "vanishing_clients": crowd_attacks.FullVanishingClients,
    "full_memory": crowd_attacks.LongFullMemory,
    "full_memory_without_eviction": crowd_attacks.LongFullMemoryWithoutEviction,
}
