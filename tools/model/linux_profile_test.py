# SPDX-License-Identifier: BSL-1.0
"""Addresses of a small invented Linux have the right function and layer."""

from pathlib import Path

import pytest

from tools.errors import Failure
from tools.model import layers, linux_profile, linux_symbols
from tools.model.linux_functions import ROWS, layer_by_name
from tools.model.linux_profile import Place, Symbols

KALLSYMS = """\
ffffffff81000000 T _text
ffffffff81000100 T tcp_ack
ffffffff81000200 t a_helper_without_a_known_name
ffffffff81000300 T tcp_v4_rcv
ffffffff81000400 t between_two_layers
ffffffff81000500 T menu_select
ffffffff81000600 D some_data
ffffffff81900000 t zzz_far_from_all
ffffffffc0001040 t ixgbe_poll\t[ixgbe]
ffffffffc0001900 t local_name\t[ixgbe]
ffffffffc0009000 t __bpf_unknown\t[bpf]
"""
MODULES = "ixgbe 405504 0 - Live 0xffffffffc0001000\ndca 16384 1 ixgbe, Live 0xffffffffc0008000\n"
CONSOLE = [
    "some other line",
    "linux: module ixgbe 405504 0xffffffffc0200000",
    "linux: map 555555559000-555555582000 00005000 /bin/memcached",
    "linux: map 7ffff7861000-7ffff79b7000 00026000 /tmp/lib/libc.so.6",
    "linux: map 7ffff7f7b000-7ffff7fac000 0000e000 /tmp/lib/libevent-2.1.so.7",
]
LIBRARIES = {"libc.so.6": [(0x26100, 0x40, "memcpy"), (0x26200, 0x40, "__sendmsg"), (0x26200, 0x40, "sendmsg")]}


@pytest.fixture
def symbols() -> Symbols:
    return Symbols(linux_symbols.parse(KALLSYMS, MODULES), CONSOLE, LIBRARIES)


@pytest.mark.parametrize(
    ("address", "function", "layer"),
    [
        (0xFFFFFFFF81000110, "tcp_ack", layers.STACK),
        (0xFFFFFFFF81000210, "a_helper_without_a_known_name", layers.STACK),
        (0xFFFFFFFF81000410, "between_two_layers", layers.OTHER),
        (0xFFFFFFFF81000510, "menu_select", layers.IDLE),
        (0xFFFFFFFF81900000, "zzz_far_from_all", layers.OTHER),
        # The module is at another address than in the boot that listed its symbols.
        (0xFFFFFFFFC0200050, "ixgbe_poll [ixgbe]", layers.DRIVER),
        (0xFFFFFFFFC0200950, "local_name [ixgbe]", layers.DRIVER),
        (0x55555555A000, "memcached", layers.APPLICATION),
        (0x7FFFF7861110, "memcpy [libc.so.6]", layers.APPLICATION),
        (0x7FFFF7861210, "sendmsg [libc.so.6]", layers.SOCKET),
        (0x7FFFF7861300, "libc.so.6", layers.APPLICATION),
        (0x7FFFF7F7B000, "libevent-2.1.so.7", layers.SOCKET),
        (0x400000, "another process", layers.OTHER),
    ],
)
def test_an_address_has_its_function_and_layer(symbols: Symbols, address: int, function: str, layer: str) -> None:
    assert symbols.place(address) == Place(function, layer)


def test_a_profile_is_summed_by_layer_and_by_function(symbols: Symbols, tmp_path: Path) -> None:
    file = tmp_path / "profile.txt"
    file.write_text("ffffffff81000100 3 0\nffffffff81000300 4 1\nffffffffc0200050 5 0\n")
    found = linux_profile.read(file, symbols)
    assert found.total == 12
    assert found.layers() == {layers.STACK: 7, layers.DRIVER: 5}
    assert found.functions(layers.STACK) == {"tcp_ack": 3, "tcp_v4_rcv": 4}
    assert linux_profile.layers(file, symbols) == found.layers()


def test_the_console_of_another_system_is_refused() -> None:
    with pytest.raises(Failure, match="no addresses of Linux's modules"):
        Symbols(linux_symbols.parse(KALLSYMS, MODULES), ["memcached: listening"])


def test_a_kernel_that_hides_its_addresses_is_refused() -> None:
    with pytest.raises(Failure, match="has no addresses"):
        linux_symbols.parse("0000000000000000 T _text\n", MODULES)


@pytest.mark.parametrize(
    ("function", "layer"),
    [
        ("__tcp_transmit_skb", layers.STACK),
        ("__kmem_cache_alloc_node", layers.STACK),
        ("raw_local_deliver", layers.STACK),
        ("_raw_spin_lock_irqsave", layers.INTERRUPT),
        ("asm_common_interrupt", layers.INTERRUPT),
        ("__local_bh_enable_ip", layers.INTERRUPT),
        ("ktime_get", layers.INTERRUPT),
        ("entry_SYSCALL_64_after_hwframe", layers.SOCKET),
        ("__x64_sys_sendmsg", layers.SOCKET),
        ("copy_user_generic_string", layers.SOCKET),
        ("ep_item_poll.isra.0", layers.SOCKET),
        ("arch_exit_to_user_mode_prepare.isra.0", layers.SOCKET),
        ("dma_map_page_attrs", layers.DRIVER),
        ("cpuidle_enter_state", layers.IDLE),
        ("tick_nohz_idle_exit", layers.IDLE),
        ("mwait_idle_with_hints.constprop.0", layers.IDLE),
        ("a_helper_without_a_known_name", None),
    ],
)
def test_a_name_has_its_layer(function: str, layer: str | None) -> None:
    assert layer_by_name(function) == layer


def test_rows_name_common_layers() -> None:
    assert {layer for layer, _ in ROWS} <= set(layers.LAYERS)


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        ("apps/memcached/store.cpp", layers.APPLICATION),
        ("kernel/idle_governor.cpp", layers.IDLE),
        ("kernel/x86/power/sleep.hpp", layers.IDLE),
        ("kernel/x86/interrupts.cpp", layers.INTERRUPT),
        ("kernel/events.cpp", layers.INTERRUPT),
        ("drivers/ixgbe/transmit_queue.cpp", layers.DRIVER),
        ("net/connection_receiving.cpp", layers.SOCKET),
        ("net/stack.hpp", layers.STACK),
        ("lwip/src/core/tcp.c", layers.STACK),
        ("kernel/log_writer.cpp", layers.OTHER),
        ("/toolchain/start.S", layers.OTHER),
    ],
)
def test_neaps_files_have_common_layers(file: str, layer: str) -> None:
    assert layers.of_file(file) == layer
