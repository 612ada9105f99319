// SPDX-License-Identifier: BSL-1.0
#include "drivers/virtio/card.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "drivers/common_settings.hpp"
#include "drivers/test_counter_names.hpp"
#include "drivers/virtio/test_stack.hpp"

namespace neap::virtio::test {
namespace {

using namespace std::chrono_literals;
using host::HostMachine;

/// A machine whose card is a simulated device. A thread executes the device's commands.
class Opened {
 public:
  explicit Opened(unsigned cores, TestDeviceOptions device_options = {}, Options options = {}) : machine(cores) {
    auto transport = std::make_unique<TestDevice>(device_options);
    device = transport.get();
    device->on_end = [this] {
      const std::lock_guard guard(alive);
      device = nullptr;
    };
    serving = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const std::lock_guard guard(alive);
        if (device != nullptr) device->serve_control();
      }
    });
    machine.run(0, [&]() -> task<void> {
      auto started = co_await start(std::move(transport), options);
      if (started) {
        card = std::move(*started);
      } else {
        error = started.error();
        std::fprintf(stderr, "%s\n", error.message);
      }
    });
    for (unsigned core = 0; card && core < card->limits().queue_pairs; ++core)
      machine.on(core, [&, core] { senders[core] = &card->attach(stacks[core]); });
  }
  ~Opened() {
    if (card) machine.run(0, [this]() -> task<void> { co_await card->close(); });
    serving.request_stop();
    serving.join();
    machine.on(0, [this] { card.reset(); });
  }
  void config_interrupt() {
    const auto [core, vector] = device->routes.at(device->config_vector);
    machine.interrupt(core, vector);
  }
  /// A page that the device can read, for ever.
  [[nodiscard]] std::byte* page() {
    return machine.value_on(0, [] { return static_cast<std::byte*>(memory::allocate_pages(0)); });
  }
  [[nodiscard]] std::uint64_t counter(std::string_view name) const {
    std::uint64_t value = ~std::uint64_t{0};
    card->report_counters({}, [&](std::string_view each, std::uint64_t count) { value = each == name ? count : value; });
    return value;
  }
  [[nodiscard]] bool had_command(Command command) const {
    return std::ranges::any_of(device->commands, [&](const Bytes& data) {
      return data.size() >= 2 && data[0] == command.command_class && data[1] == command.command;
    });
  }

  struct Pages {
    Pages() { host::prepare_pages(); }
  } pages;
  HostMachine machine;
  std::mutex alive;
  TestDevice* device = nullptr;
  std::unique_ptr<Card> card;
  Error error{};
  std::array<TestReceiver, 4> stacks;
  std::array<FrameSender*, 4> senders{};
  std::jthread serving;
};

TEST(VirtioCard, EachCoreGetsAPairAsFarAsTheDeviceHasSome) {
  for (const auto& [cores, pairs, vectors, expected] :
       std::initializer_list<std::array<unsigned, 4>>{{1, 4, 8, 1}, {4, 4, 8, 4}, {4, 2, 8, 2}, {4, 4, 3, 2}, {2, 1, 2, 1}}) {
    Opened opened(cores, {.queue_pairs_max = pairs, .vectors = vectors});
    ASSERT_NE(opened.card, nullptr) << opened.error.message;
    EXPECT_EQ(opened.card->limits().queue_pairs, expected);
    EXPECT_EQ(opened.device->routes.size(), expected + 1);
    EXPECT_EQ(opened.had_command(command::set_rss), expected > 1);
  }
}

TEST(VirtioCard, WithoutRssTheDeviceDecides) {
  constexpr std::uint64_t all = ~std::uint64_t{0};
  {
    Opened opened(4, {.features = all & ~feature::rss});
    ASSERT_NE(opened.card, nullptr) << opened.error.message;
    EXPECT_TRUE(opened.had_command(command::set_queue_pairs));
    EXPECT_EQ(opened.card->receiving_core(1, 2, 3, 4), NetDevice::device_decides);
  }
  {
    Opened one(1, {.features = all & ~feature::rss});
    EXPECT_EQ(one.card->receiving_core(1, 2, 3, 4), 0U);
  }
  Opened none(4, {.features = all & ~(feature::rss | feature::multiqueue)});
  EXPECT_EQ(none.card->limits().queue_pairs, 1U);
}

TEST(VirtioCard, FeaturesAreUsedOnlyWithThoseThatTheyNeed) {
  const auto agreed = [](std::uint64_t features) {
    Opened opened(1, {.features = features | feature::version_1});
    return opened.card ? opened.card->features() : 0;
  };
  EXPECT_EQ(agreed(0), feature::version_1);
  EXPECT_EQ(agreed(feature::host_tso4 | feature::guest_tso4 | feature::multiqueue), feature::version_1);
  EXPECT_EQ(agreed(feature::guest_tso4 | feature::guest_checksum), feature::version_1 | feature::guest_checksum);
  constexpr std::uint64_t joined = feature::guest_tso4 | feature::guest_checksum | feature::merged_buffers;
  EXPECT_EQ(agreed(joined), feature::version_1 | joined);
  Opened legacy(1, {.features = feature::mac});
  EXPECT_EQ(legacy.error.code, ErrorCode::unsupported);
}

TEST(VirtioCard, AnUnusableDeviceIsRefused) {
  EXPECT_EQ(Opened(1, {.refuses_features = true}).error.code, ErrorCode::unsupported);
  EXPECT_EQ(Opened(1, {.vectors = 1}).error.code, ErrorCode::unsupported);
  EXPECT_EQ(Opened(1, {.queue_size = 16}).error.code, ErrorCode::device);
  EXPECT_EQ(Opened(1, {.mtu = 1400}).error.code, ErrorCode::invalid);
  EXPECT_EQ(Opened(1, {.features = feature::version_1}, {.frame_bytes_max = 9014}).error.code, ErrorCode::unsupported);
}

TEST(VirtioCard, FramesPassInBothDirectionsOnEachCore) {
  Opened opened(2);
  ASSERT_NE(opened.card, nullptr) << opened.error.message;
  std::byte* const memory = opened.page();
  for (unsigned core = 0; core < 2; ++core) {
    DeviceRing& rx = opened.device->queues.at(2 * core).ring;
    ASSERT_TRUE(rx.receive(frame_of(core, 60)));
    EXPECT_TRUE(rx.publish());
    const auto [target, vector] = opened.device->routes.at(core);
    EXPECT_EQ(target, core);
    opened.machine.interrupt(core, vector);
    ASSERT_TRUE(
        HostMachine::wait_until([&] { return opened.machine.value_on(core, [&] { return opened.stacks[core].frames.size(); }) == 1; }));
    opened.machine.on(core, [&] {
      EXPECT_EQ(opened.stacks[core].frames.front(), frame_of(core, 60));
      const TransmitPiece piece{.data = memory, .bytes = 100};
      EXPECT_TRUE(opened.senders[core]->transmit({&piece, 1}, {}, token_of(5)).has_value());
    });
    std::deque<SentFrame> sent;
    DeviceRing& tx = opened.device->queues.at(2 * core + 1).ring;
    // The driver notifies the device at the end of the event.
    ASSERT_TRUE(HostMachine::wait_until([&] { return tx.waiting() != 0; }));
    tx.transmit(sent);
    EXPECT_EQ(sent.size(), 1U);
    const std::atomic_ref doorbell(opened.device->doorbells[2 * core + 1]);
    EXPECT_TRUE(HostMachine::wait_until([&] { return doorbell.load() == 2 * core + 1; }));
    EXPECT_FALSE(tx.publish()) << "completions raise no interrupt";
    opened.machine.on(core, [&] { opened.senders[core]->reap(); });
    EXPECT_EQ(opened.stacks[core].tokens, std::vector<void*>{token_of(5)});
  }
}

TEST(VirtioCard, ALinkThatGoesDownIsReported) {
  Opened opened(2);
  ASSERT_NE(opened.card, nullptr) << opened.error.message;
  EXPECT_TRUE(opened.card->link_up());
  EXPECT_EQ(opened.card->link_megabits(), 10'000U);
  opened.device->link = 0;
  opened.config_interrupt();
  EXPECT_TRUE(HostMachine::wait_until(
      [&] { return opened.machine.value_on(1, [&] { return !opened.stacks[1].link.empty() && !opened.stacks[1].link.back(); }); }));
  EXPECT_FALSE(opened.card->link_up());
  opened.machine.on(1, [&] {
    const TransmitPiece piece{.data = nullptr, .bytes = 100};
    EXPECT_EQ(opened.senders[1]->transmit({&piece, 1}, {}, nullptr).error(), ErrorCode::closed);
  });
}

// A device that wants a reset, and one that writes an impossible entry, are closed, and what they held comes back.
TEST(VirtioCard, AFailedDeviceIsClosed) {
  for (const bool by_ring : {false, true}) {
    Opened opened(2);
    ASSERT_NE(opened.card, nullptr) << opened.error.message;
    std::byte* const memory = opened.page();
    opened.machine.on(1, [&] {
      const TransmitPiece piece{.data = memory, .bytes = 100};
      EXPECT_TRUE(opened.senders[1]->transmit({&piece, 1}, {}, token_of(5)).has_value());
    });
    if (by_ring) {
      DeviceRing& rx = opened.device->queues.at(2).ring;
      rx.put(7777, 100);
      static_cast<void>(rx.publish());
      const auto [core, vector] = opened.device->routes.at(1);
      opened.machine.interrupt(core, vector);
    } else {
      opened.device->status |= status::needs_reset;
      opened.config_interrupt();
    }
    EXPECT_TRUE(HostMachine::wait_until(
        [&] { return opened.machine.value_on(1, [&] { return opened.stacks[1].tokens == std::vector<void*>{token_of(5)}; }); }));
    EXPECT_TRUE(HostMachine::wait_until([&] { return !opened.device->enabled; }));
    EXPECT_EQ(opened.device->status, 0U);
    EXPECT_EQ(opened.counter("virtio.card.failures"), 1U);
    EXPECT_EQ(opened.counter("virtio.pair.wrong_entries"), by_ring ? 1U : 0U);
    EXPECT_EQ(opened.counter("virtio.tx.lost"), 1U);
  }
}

TEST(VirtioCard, SettingsAndGroupsAreCommands) {
  Opened opened(2);
  ASSERT_NE(opened.card, nullptr) << opened.error.message;
  const std::vector<MacAddress> groups{MacAddress{1, 0, 0x5E, 0, 0, 1}};
  opened.machine.run(0, [&]() -> task<void> {
    EXPECT_TRUE((co_await opened.card->change(card_setting::promiscuous, 1, policy::all_cores)).has_value());
    EXPECT_EQ(opened.card->value_of(card_setting::promiscuous), 1U);
    EXPECT_TRUE((co_await opened.card->change(card_setting::coalescing, 0, policy::all_cores)).has_value());
    EXPECT_EQ(opened.card->value_of(card_setting::coalescing), 0U);
    EXPECT_TRUE((co_await opened.card->change(card_setting::budget, 3, policy::all_cores)).has_value());
    co_await opened.card->set_multicast(groups);
  });
  const Bytes& last = opened.device->commands.back();
  EXPECT_EQ(last, (Bytes{1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0x5E, 0, 0, 1}));
  EXPECT_TRUE(opened.had_command(command::set_guest_offloads));
  opened.device->refuses_commands = true;
  opened.machine.run(0, [&]() -> task<void> {
    EXPECT_EQ((co_await opened.card->change(card_setting::promiscuous, 0, policy::all_cores)).error().code, ErrorCode::device);
    EXPECT_EQ(opened.card->value_of(card_setting::promiscuous), 1U);
  });
}

// The stack starts `set_multicast` and does not wait for its end.
TEST(VirtioCard, ACardIsClosedWhileCommandsWait) {
  Opened opened(1);
  ASSERT_NE(opened.card, nullptr) << opened.error.message;
  opened.device->ignores_commands = true;
  for (int i = 0; i < 2; ++i) opened.machine.on(0, [&] { neap::start(opened.card->set_multicast({})); });
  opened.machine.run(0, [&]() -> task<void> {
    co_await opened.card->close();
    EXPECT_FALSE(opened.card->link_up());
    opened.card.reset();
  });
}

TEST(VirtioCard, ModerationIsOfferedWhereTheDeviceHasIt) {
  {
    Opened opened(2);
    ASSERT_NE(opened.card, nullptr) << opened.error.message;
    EXPECT_EQ(opened.card->round_itr(1, 16).value_or(0), 16U);
    EXPECT_EQ(opened.card->round_itr(2, 16).error().code, ErrorCode::unsupported);
    opened.machine.on(1, [&] { opened.card->set_itr(1, 16); });
    EXPECT_TRUE(HostMachine::wait_until([&] { return opened.counter("virtio.card.commands") >= 4; }));
    EXPECT_EQ(opened.card->itr_us(1), 16U);
    EXPECT_EQ(opened.card->itr_us(0), 0U);
  }
  Opened without(1, {.features = ~(feature::coalescing | feature::queue_coalescing)});
  EXPECT_EQ(without.card->round_itr(0, 16).error().code, ErrorCode::invalid);
  EXPECT_TRUE(without.card->round_itr(0, 0).has_value());
}

// A device that has failed is closed already, so `close` waits for no further reset.
TEST(VirtioCard, AFailedCardIsClosedAtOnce) {
  Opened opened(1);
  ASSERT_NE(opened.card, nullptr) << opened.error.message;
  opened.device->status |= status::needs_reset;
  opened.config_interrupt();
  EXPECT_TRUE(HostMachine::wait_until([&] { return opened.counter("virtio.card.failures") == 1 && !opened.device->enabled; }));
  opened.device->options.never_resets = true;
  opened.device->status = status::driver;  // a second reset would wait for its time-out
  const auto before = std::chrono::steady_clock::now();
  opened.machine.run(0, [&]() -> task<void> { co_await opened.card->close(); });
  EXPECT_LT(std::chrono::steady_clock::now() - before, 500ms);
}

TEST(VirtioCounters, EachHasItsOwnName) {
  std::multiset<std::string_view> names;
  neap::test::add_counter_names<log::Traffic>(names, traffic_counts);
  neap::test::add_counter_names<ReceiveCounters>(names, ReceiveQueueCounters::names, ReceiveCounters::names);
  neap::test::add_counter_names<TransmitCounters>(names, TransmitQueueCounters::names, TransmitCounters::names);
  neap::test::add_counter_names<PairCounters>(names, QueuePairCounters::names, PairCounters::names);
  neap::test::add_counter_names<CardCounters>(names, NetCardCounters::names, CardCounters::names);
  for (const std::string_view name : names) EXPECT_EQ(names.count(name), 1U) << name;
}

}  // namespace
}  // namespace neap::virtio::test
