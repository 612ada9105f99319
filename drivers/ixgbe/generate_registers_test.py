# SPDX-License-Identifier: BSL-1.0
"""The generator refuses contradictory tables by messages that name the row. Its output compiles and passes static assertions."""

import shutil
import sys
from pathlib import Path

import compare_with_linux
import generate_registers as generator
import pytest
import register_table

from tools.process import finished

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = HERE / "registers.toml"
ROW = 'access = "rw"\ntext = "a register"\n'


def table_of(body: str) -> register_table.Table:
    return register_table.parse('[block.one]\nsection = "8.2.3.1"\n' + body)


def refusal(body: str) -> str:
    with pytest.raises(register_table.TableError) as caught:
        table_of(body)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[block.one.AAA]\noffset = 0\n" + ROW + "fields.low = [0, 7]\nfields.high = [7, 9]\n", ["AAA", "low", "high", "bit 7"]),
        ("[block.one.AAA]\noffset = 0\n" + ROW + "fields.big = [30, 32]\n", ["AAA", "big", "0x1f"]),
        ("[block.one.AAA]\noffset = 0\n" + ROW + "fields.back = [5, 4]\n", ["AAA", "back"]),
        ("[block.one.AAA]\noffset = 0\n" + ROW + "fields.return = 1\n", ["AAA", "return"]),
        ("[block.one.AAA]\noffset = 0\n" + ROW + "fields.one = 1\nfields.one_mask = 2\n", ["AAA", "one_mask"]),
        ("[block.one.AAA]\noffset = 0\nstride = 4\ncount = 3\n" + ROW + "[block.one.BBB]\noffset = 8\n" + ROW, ["BBB", "AAA[2]", "0x0000"]),
        ("[block.one.AAA]\noffset = 0\naliases = [[8, 4, 1]]\n" + ROW + "[block.one.BBB]\noffset = 8\n" + ROW, ["BBB", "AAA (alias)"]),
        ("[block.one.AAA]\noffset = 0\naliases = [[8, 4, 2]]\n" + ROW, ["AAA", "alias"]),
        ("[block.one.AAA]\noffset = 2\n" + ROW, ["AAA", "multiples of 4"]),
        ("[block.one.AAA]\noffset = 0x20000\n" + ROW, ["AAA", "offset"]),
        ("[block.one.AAA]\noffset = 0x1FFF0\nstride = 16\ncount = 2\n" + ROW, ["AAA", "outside"]),
        ("[block.one.AAA]\noffset = 0\nstride = 4\n" + ROW, ["AAA", "stride and count"]),
        ('[block.one.AAA]\noffset = 0\naccess = "sometimes"\ntext = "x"\n', ["AAA", "sometimes"]),
        ("[block.one.AAA]\noffset = 0\nreset = 0x100000000\n" + ROW, ["AAA", "reset"]),
        ('[block.one.AAA]\noffset = 0\nlike = "ZZZ"\n' + ROW, ["AAA", "ZZZ"]),
        ("[block.one.AAA]\noffset = 0\ncolour = 3\n" + ROW, ["AAA", "colour"]),
        ('[block.one.AAA]\noffset = 0\nself_clearing = ["go"]\n' + ROW + "fields.stop = 1\n", ["AAA", "self_clearing", "go"]),
        ('[block.one.AAA]\noffset = 0\nmodels = ["x710"]\n' + ROW, ["AAA", "models", "x540"]),
        ("[block.one.AAA]\noffset = 0\nmodels = []\n" + ROW, ["AAA", "models"]),
        ("[block.one.AAA]\noffset = 0\n" + ROW + '[block.two]\nsection = "1"\n[block.two.AAA]\noffset = 4\n' + ROW, ["AAA", "one", "two"]),
        ("[block.one.A_B]\noffset = 0\n" + ROW + "[block.one.AB]\noffset = 4\n" + ROW, []),
        ("[block.one.AAA]\noffset = 0\n" + ROW + "[block.one.AAA]\noffset = 4\n" + ROW, ["AAA"]),
        ('[descriptor.Thing]\nsection = "7"\ntext = "x"\nfields.wide = [60, 70]\n', ["Thing", "wide", "64"]),
        ('[descriptor.Thing]\nsection = "7"\ntext = "x"\nfields.far = 128\n', ["Thing", "far"]),
    ],
)
def test_a_contradiction_is_refused_and_its_row_named(body: str, words: list[str]) -> None:
    if not words:  # A_B and AB differ as types (AB, Ab): nothing to refuse.
        assert [register_table.pascal(r.name) for r in table_of(body).registers] == ["AB", "Ab"]
        return
    message = refusal(body)
    assert all(word in message for word in words), message


def test_a_wrong_table_does_not_change_the_old_output(tmp_path: Path) -> None:
    table, output = tmp_path / "registers.toml", tmp_path / "out.hpp"
    table.write_text("[block.one.AAA]\noffset = 2\n" + ROW)
    output.write_text("old")
    result = finished([sys.executable, str(HERE / "generate_registers.py"), "--table", str(table), "--cpp", str(output)])
    assert result.returncode == 1
    assert result.stderr.startswith("generate_registers: registers.toml: AAA:") and result.stderr.count("\n") == 1
    assert output.read_text() == "old"


def test_an_equal_output_is_not_touched(tmp_path: Path) -> None:
    output = tmp_path / "registers.hpp"
    assert generator.main(["--cpp", str(output)]) == 0
    before = output.stat().st_mtime_ns
    assert generator.main(["--cpp", str(output)]) == 0
    assert output.stat().st_mtime_ns == before


def test_entries_of_arrays_have_the_offsets_of_their_ranges() -> None:
    registers = {r.name: r for r in register_table.parse(TABLE.read_text()).registers}
    assert registers["RDBAL"].offset_of(63) == 0x01000 + 63 * 0x40
    assert registers["RDBAL"].offset_of(64) == 0x0D000
    assert registers["EITR"].offset_of(24) == 0x12300
    assert registers["RAL"].offset_of(2) == 0x0A210
    assert registers["ERETA"].offset_of(95) == 0x0EE80 + 95 * 4
    with pytest.raises(IndexError):
        registers["RDBAL"].offset_of(128)


def test_a_register_is_on_all_models_unless_its_row_names_some() -> None:
    bits = {r.name: r.model_bits for r in register_table.parse(TABLE.read_text()).registers}
    assert (bits["CTRL"], bits["EERD"], bits["ERETA"]) == (0b111, 0b011, 0b100)


CHECKS = r"""
#include "ixgbe/registers.hpp"
#include <type_traits>
using namespace neap::ixgbe;
static_assert(reg::CTRL.offset == 0x00000 && reg::RDBAL(64).offset == 0x0D000 && reg::TDT(127).offset == 0x06018 + 127 * 0x40);
static_assert(std::is_same_v<decltype(reg::RXDCTL(0))::Value, reg::Rxdctl>);
static_assert(reg::Rxdctl{.enable = true}.raw() == 0x0200'0000);
static_assert(reg::Rxdctl::from_raw(0x0200'0000).enable && !reg::Rxdctl::from_raw(0x0100'0000).enable);
static_assert(reg::Ivar{.rx_even = 3, .rx_even_valid = true, .tx_even = 5, .tx_even_valid = true}.raw() == 0x8583);
static_assert(reg::Eitr{.itr_interval = 4}.raw() == 4 << 3);
static_assert(reg::Gprc{.value = 0xFFFF'FFFF}.raw() == 0xFFFF'FFFF);
static_assert(reg::Status::reset_raw == 0x0008'0000 && reg::Status::name == "STATUS");
constexpr auto toggled(std::uint32_t raw) { auto v = reg::Autoc::from_raw(raw); v.restart_an = !v.restart_an; return v.raw(); }
static_assert(toggled(0xFFFF'FFFF) == (0xFFFF'FFFF & ~reg::Autoc::restart_an_mask) && toggled(0) == reg::Autoc::restart_an_mask);
constexpr auto untouched(std::uint32_t raw) { return reg::Ctrl::from_raw(raw).raw(); }
static_assert(untouched(0xDEAD'BEEF) == 0xDEAD'BEEF);  // bits without a name survive
using descriptor::ReceiveWriteBack, descriptor::TransmitData;
static_assert(ReceiveWriteBack::from_raw(0x1234'5678'0000'0001, 0x002A'05DC'0000'0003).length == 1500);
static_assert(ReceiveWriteBack::from_raw(0x1234'5678'0000'0001, 0x002A'05DC'0000'0003).rss_hash == 0x1234'5678);
static_assert(ReceiveWriteBack::from_raw(0, 1).descriptor_done && !ReceiveWriteBack::from_raw(~0ULL, ~1ULL).descriptor_done);
static_assert(TransmitData{.buffer_address = 0x1'2345'6789, .data_length = 60, .type = 3, .end_of_packet = true, .extension = true,
                           .payload_length = 60}.raw() == std::array<std::uint64_t, 2>{0x1'2345'6789, 0x000F'0000'2130'003C});
struct Registers {
  volatile std::uint32_t* base;
  template <class V> V read(reg::Location<V> from) const { return V::from_raw(base[from.offset / 4]); }
  template <class V> void write(reg::Location<V> to, std::type_identity_t<V> value) const { base[to.offset / 4] = value.raw(); }
};
bool use(Registers regs, std::uint32_t i) { regs.write(reg::RXDCTL(i), {.enable = true}); return regs.read(reg::RXDCTL(i)).enable; }
"""


def test_the_cpp_compiles_without_a_warning_and_is_correct(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler, "g++ is needed (package g++)"
    assert generator.main(["--cpp", str(tmp_path / "ixgbe/registers.hpp")]) == 0
    source = tmp_path / "checks.cpp"
    source.write_text(CHECKS)
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wpedantic", "-Wshadow", "-Werror"]
    for extra in ([], ["-DNDEBUG", "-O2"]):
        result = finished([compiler, "-std=c++23", "-fsyntax-only", *warnings, *extra, f"-I{tmp_path}", f"-I{ROOT}", str(source)], 120)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "expression", ["reg::Eitr{.itr_interval = 512}.raw()", "reg::RDBAL(128).offset", "descriptor::TransmitData{.type = 16}.raw()[1]"]
)
def test_a_value_that_does_not_fit_does_not_compile(tmp_path: Path, expression: str) -> None:
    assert generator.main(["--cpp", str(tmp_path / "ixgbe/registers.hpp")]) == 0
    source = tmp_path / "wrong.cpp"
    source.write_text(f'#include "ixgbe/registers.hpp"\nusing namespace neap::ixgbe;\nconstexpr auto wrong = {expression};\n')
    result = finished(["g++", "-std=c++23", "-fsyntax-only", f"-I{tmp_path}", f"-I{ROOT}", str(source)], 120)
    assert result.returncode != 0 and ("panic" in result.stderr or "assert" in result.stderr), result.stderr


LINUX_LIKE = """
#define IXGBE_AAA\t\t0x00010 /* plain */
#define IXGBE_BBB(_i)   (((_i) <= 15) ? (0x02100 + ((_i) * 4)) : \\
                          (((_i) < 64) ? (0x01014 + ((_i) * 0x40)) : \\
                          (0x0D014 + (((_i) - 64) * 0x40))))
#define IXGBE_OTHER(_i) something(_i)
"""


def test_the_comparison_understands_linux_macros_and_finds_a_wrong_offset() -> None:
    good = (
        "[block.one.AAA]\noffset = 0x10\n"
        + ROW
        + "[block.one.BBB]\nranges = [[0x1014, 0x40, 64], [0xD014, 0x40, 64]]\naliases = [[0x2100, 4, 16]]\n"
        + ROW
        + '[block.one.OURS]\noffset = 0x14\nlinux = ""\n'
        + ROW
    )
    assert compare_with_linux.compare(table_of(good), LINUX_LIKE) == (2, [])
    for name in ("OTHER", "UNHEARD"):
        _, differences = compare_with_linux.compare(table_of(f"[block.one.{name}]\noffset = 0x14\n" + ROW), LINUX_LIKE)
        assert len(differences) == 1 and name in differences[0], "what cannot be compared passes"
    for wrong in (good.replace("0x10\n", "0x18\n"), good.replace("[0xD014", "[0xE014"), good.replace("[[0x2100", "[[0x2104")):
        shared, differences = compare_with_linux.compare(table_of(wrong), LINUX_LIKE)
        assert (shared, len(differences)) == (2, 1), differences
