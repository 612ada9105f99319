// SPDX-License-Identifier: BSL-1.0
// The rows of X540 and X550, and the start-up steps that depend on a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "drivers/ixgbe/device_ids.hpp"
#include "drivers/ixgbe/link.hpp"
#include "drivers/ixgbe/phy.hpp"
#include "drivers/ixgbe/semaphore.hpp"
#include "drivers/ixgbe/start_up.hpp"
#include "drivers/ixgbe/test_card.hpp"
#include "kernel/task.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::ixgbe {
namespace {

struct ModelsTest : testing::Test {
  template <class Phase>
  Error error_of(Phase phase) {
    return test::error_of(machine, phase);
  }
  test::TestCard card;
  host::HostMachine machine{1};
  Registers registers = card.registers();
};

const DeviceKind* kind_with(std::uint16_t device_id) {
  const auto* const found = std::ranges::find(device_kinds, device_id, &DeviceKind::device_id);
  return found == std::end(device_kinds) ? nullptr : found;
}

TEST_F(ModelsTest, EachDeviceIdHasARowAndOnlyTheNewModelsHaveAPhy) {
  for (const DeviceKind& kind : device_kinds) {
    EXPECT_EQ(kind_with(kind.device_id), &kind) << "an id is listed twice";
    EXPECT_EQ(kind.medium == Medium::phy, kind.model != &model_82599) << std::hex << kind.device_id;
  }
  EXPECT_EQ(kind_with(0x1528)->model, &model_x540);
  EXPECT_EQ(kind_with(0x1563)->model, &model_x550);
  EXPECT_EQ(kind_with(0x1572), nullptr) << "the X710 has other registers";
}

// With 3 queues no entry is right by chance: 128 and 512 are no multiples of 3.
TEST_F(ModelsTest, TheWholeRssTableOfTheModelIsWritten) {
  for (const Model* model : {&model_x540, &model_x550}) {
    card.all_registers_read(0);
    const rss::Table table = rss::table_for(3, rss::none, model->rss_entries);
    program_receive(registers, *model, table, 1514);
    for (unsigned i = 0; i < model->rss_entries / 4; ++i) {
      const std::uint32_t raw =
          i < reg::RETA.count ? registers.read(reg::RETA(i)).raw() : registers.read(reg::ERETA(i - reg::RETA.count)).raw();
      for (unsigned byte = 0; byte < 4; ++byte) EXPECT_EQ(raw >> 8 * byte & 0xFF, (4 * i + byte) % 3) << model->name << " " << i;
    }
    EXPECT_EQ(rss::queue_of(table, 511), (model->rss_entries - 1) % 3) << model->name;
    const bool has_more = model->rss_entries > 128;
    EXPECT_EQ(registers.read(reg::ERETA(95)).raw() != 0, has_more) << model->name;
  }
}

TEST_F(ModelsTest, ThePacketBufferAndItsThresholdsFitTheModel) {
  for (const Model* model : {&model_82599, &model_x540, &model_x550}) {
    program_receive(registers, *model, rss::table_for(1), 9000);
    EXPECT_EQ(registers.read(reg::RXPBSIZE(0)).size_kib, model->receive_buffer_kib) << model->name;
    program_flow_control(registers, *model, {.frame_bytes_max = 9000, .flow_control = flow_control_transmit});
    EXPECT_LT(registers.read(reg::FCRTH(0)).threshold_16 * 16, (model->receive_buffer_kib - 32) * 1024) << model->name;
    EXPECT_GT(registers.read(reg::FCRTH(0)).threshold_16 * 16, model->receive_buffer_kib / 2 * 1024) << model->name;
  }
}

TEST_F(ModelsTest, TheGuardOfTheNewModelsIsGivenBack) {
  registers.write(reg::SW_FW_SYNC, {.sw_eeprom = true});
  EXPECT_STREQ(error_of([&] { return acquire(registers, SyncGuard::regsmp, SharedResource::phy0); }).message, "");
  EXPECT_TRUE(registers.read(reg::SW_FW_SYNC).sw_phy0 && registers.read(reg::SW_FW_SYNC).sw_eeprom);
  EXPECT_FALSE(registers.read(reg::SW_FW_SYNC).regsmp);
  EXPECT_FALSE(registers.read(reg::SWSM).swesmbi) << "the 82599's bit";
  EXPECT_STREQ(error_of([&] { return release(registers, SyncGuard::regsmp, SharedResource::phy0); }).message, "");
  EXPECT_FALSE(registers.read(reg::SW_FW_SYNC).sw_phy0);
}

// In this test the bit never reads as zero, as if the firmware held it for ever.
TEST_F(ModelsTest, AGuardThatIsNeverFreeIsATimeOutThatNamesIt) {
  registers.write(reg::SW_FW_SYNC, {.regsmp = true});
  const Error error = error_of([&] { return acquire(registers, SyncGuard::regsmp, SharedResource::phy0); });
  EXPECT_EQ(error.code, ErrorCode::timeout);
  EXPECT_NE(std::string_view(error.message).find("REGSMP"), std::string_view::npos) << error.message;
}

/// A PHY behind the test card's MDIO bus. A task beside the driver's answers the commands.
struct TestPhy {
  Registers registers;
  std::uint32_t address = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> values{{{1, 2}, 0x0154}};  ///< by device and address
  unsigned writes = 0;
  bool stopping = false, stopped = false;

  task<void> serve() {
    std::array<std::uint32_t, 32> latched{};
    for (; !stopping; co_await sleep_for(std::chrono::microseconds{1})) {
      reg::Msca command = registers.read(reg::MSCA);
      if (!command.command) continue;
      std::uint32_t& at = latched.at(command.device);
      const bool ours = command.phy == address;
      if (command.opcode == 0) at = command.address;
      if (command.opcode == 1 && ours) {
        values[{command.device, at}] = registers.read(reg::MSRWD).write_data;
        ++writes;
      }
      if (command.opcode == 3) registers.write(reg::MSRWD, {.read_data = ours ? values[{command.device, at}] : 0xFFFF});
      command.command = false;
      registers.write(reg::MSCA, command);
    }
    stopped = true;
  }

  task<Result<void>> wake() {
    start(serve());
    auto done = co_await wake_phy(registers);
    for (stopping = true; !stopped;) co_await sleep_for(std::chrono::microseconds{1});
    co_return done;
  }
};

TEST_F(ModelsTest, APhyInLowPowerModeIsWokenAndOtherBitsAreKept) {
  constexpr std::uint32_t low_power = 1U << 11;
  for (const std::uint32_t address : {0U, 3U}) {
    for (const std::uint32_t before : {low_power | 5U, 5U, 0U}) {
      TestPhy phy{.registers = registers, .address = address};
      phy.values[{30, 0}] = before;
      EXPECT_STREQ(error_of([&] { return phy.wake(); }).message, "");
      EXPECT_EQ((phy.values[{30, 0}]), before & ~low_power);
      EXPECT_EQ(phy.writes, (before & low_power) != 0 ? 1U : 0U) << "a PHY that is awake is left alone";
    }
  }
}

TEST_F(ModelsTest, ABusWithoutAPhyIsReported) {
  TestPhy elsewhere{.registers = registers, .address = 99};
  EXPECT_EQ(error_of([&] { return elsewhere.wake(); }).code, ErrorCode::not_found);
}

// A test card's MSCA keeps its command bit, as on a bus that hangs. The link may come up all the same, so the start goes on.
TEST_F(ModelsTest, APhyThatDoesNotAnswerIsReportedAndLeftAlone) {
  EXPECT_EQ(error_of([&] { return wake_phy(registers); }).code, ErrorCode::timeout);
  EXPECT_STREQ(error_of([&] { return start_link(registers, model_x550, Medium::phy); }).message, "");
  EXPECT_NE(host::take_console_text().find("MSCA"), std::string::npos);
  EXPECT_FALSE(registers.read(reg::SW_FW_SYNC).sw_phy0) << "the PHY is given back";
  EXPECT_EQ(registers.read(reg::AUTOC).raw(), 0U) << "the PHY negotiates by itself";
  card.all_registers_read(0xFF);
  EXPECT_EQ(error_of([&] { return start_link(registers, model_x550, Medium::phy); }).code, ErrorCode::closed);
}

TEST_F(ModelsTest, OnlyTheX550HasSpeedsBetween1And10Gigabits) {
  const auto megabits = [&](std::uint32_t speed, bool between, const Model& model) {
    // LINKS is read-only for a driver; the test card is memory.
    registers.write(reg::LINKS, {.speed_between = between, .speed = speed, .link_up = true});
    return read_link(registers, model).megabits;
  };
  EXPECT_EQ(megabits(3, false, model_x550), 10'000U);
  EXPECT_EQ(megabits(3, true, model_x550), 2'500U);
  EXPECT_EQ(megabits(1, true, model_x550), 5'000U);
  EXPECT_EQ(megabits(2, false, model_x550), 1'000U);
  EXPECT_EQ(megabits(3, true, model_82599), 10'000U) << "the bit has another meaning there";
  EXPECT_EQ(megabits(1, false, model_x540), 100U);
}

}  // namespace
}  // namespace neap::ixgbe
