// SPDX-License-Identifier: BSL-1.0
#include "drivers/ixgbe/start_up.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/ixgbe/counters.hpp"
#include "drivers/ixgbe/queue_options.hpp"
#include "drivers/ixgbe/semaphore.hpp"
#include "drivers/ixgbe/sfp.hpp"
#include "drivers/ixgbe/statistics.hpp"
#include "drivers/ixgbe/test_card.hpp"
#include "drivers/ixgbe/vectors.hpp"
#include "drivers/test_counter_names.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::ixgbe {
namespace {

using host::HostMachine;

struct StartUpTest : testing::Test {
  template <class Phase>
  Error error_of(Phase phase) {
    return test::error_of(machine, phase);
  }
  /// Runs a phase that waits for a bit that never changes; the error must name the bit's register.
  template <class Phase>
  void expect_time_out(const char* bit, Phase phase) {
    const Error error = error_of(phase);
    EXPECT_EQ(error.code, ErrorCode::timeout);
    EXPECT_NE(std::string_view(error.message).find(bit), std::string_view::npos) << error.message;
    detail = error.detail;
  }
  test::TestCard card;
  HostMachine machine{1};
  Registers registers = card.registers();
  std::uint64_t detail = 0;  ///< the error's detail of the last time-out
};

// In this test CTRL.RST does not clear itself, as in a card that hangs in its reset.
TEST_F(StartUpTest, AnEndlessResetIsATimeOutThatNamesTheRegister) {
  expect_time_out("CTRL.RST", [&] { return reset_card(registers); });
  EXPECT_NE(detail, 0U) << "the last value read";
}

TEST_F(StartUpTest, AnEepromThatNeverLoadsIsATimeOutThatNamesTheRegister) {
  expect_time_out("EEC.AUTO_RD", [&] { return wait_until_initialised(registers); });
}

TEST_F(StartUpTest, DmaThatNeverInitialisesIsATimeOutThatNamesTheRegister) {
  registers.write(reg::EEC, {.auto_read_done = true});
  registers.write(reg::EEMNGCTL, {.cfg_done0 = true});
  expect_time_out("RDRXCTL.DMAIDONE", [&] { return wait_until_initialised(registers); });
}

TEST_F(StartUpTest, AnEepromWordThatNeverArrivesIsATimeOut) {
  expect_time_out("EERD.DONE", [&] { return read_eeprom(registers, 5); });
}

TEST_F(StartUpTest, ACardThatIsGoneIsReportedAsGone) {
  card.all_registers_read(0xFF);
  EXPECT_EQ(error_of([&] { return reset_card(registers); }).code, ErrorCode::closed);
  EXPECT_EQ(error_of([&] { return wait_until_initialised(registers); }).code, ErrorCode::closed);
  EXPECT_EQ(error_of([&] { return read_eeprom(registers, 5); }).code, ErrorCode::closed);
  EXPECT_EQ(error_of([&] { return acquire(registers, SyncGuard::swesmbi, SharedResource::mac); }).code, ErrorCode::closed);
}

// The bits of an owner that crashed stay set, and must not block the next driver.
TEST_F(StartUpTest, ALostSemaphoreIsTakenOver) {
  registers.write(reg::SW_FW_SYNC, {.sw_phy0 = true, .fw_mac = true});
  EXPECT_STREQ(error_of([&] { return acquire(registers, SyncGuard::swesmbi, SharedResource::mac); }).message, "");
  EXPECT_TRUE(registers.read(reg::SW_FW_SYNC).sw_mac);
  EXPECT_TRUE(registers.read(reg::SW_FW_SYNC).sw_phy0) << "resources of other owners are not changed";
  EXPECT_NE(host::take_console_text().find("SW_FW_SYNC"), std::string::npos);
  EXPECT_STREQ(error_of([&] { return release(registers, SyncGuard::swesmbi, SharedResource::mac); }).message, "");
  EXPECT_FALSE(registers.read(reg::SW_FW_SYNC).sw_mac);
  EXPECT_FALSE(registers.read(reg::SWSM).swesmbi);
}

TEST_F(StartUpTest, MacComesFromFilterZeroAndMustBeUnicast) {
  registers.write(reg::RAL(0), {.address_low = 0x03020152});
  registers.write(reg::RAH(0), {.address_high = 0x0504, .valid = true});
  const auto mac = read_mac(registers);
  ASSERT_TRUE(mac.has_value());
  EXPECT_EQ(*mac, (MacAddress{0x52, 0x01, 0x02, 0x03, 0x04, 0x05}));
  registers.write(reg::RAL(0), {.address_low = 0x03020153});
  EXPECT_EQ(read_mac(registers).error().code, ErrorCode::device) << "multicast bit";
  registers.write(reg::RAL(0), {.address_low = 0});
  registers.write(reg::RAH(0), {.address_high = 0, .valid = true});
  EXPECT_EQ(read_mac(registers).error().code, ErrorCode::device) << "all zero";
}

TEST_F(StartUpTest, EveryQueueHasItsOwnVectorAndTheLinkTheLast) {
  for (const unsigned pairs : {1U, 3U, 16U, 18U, 63U}) {
    const unsigned receiving = std::min(pairs, receive_queues_max);
    card.all_registers_read(0);
    program_vectors(registers, pairs, true);
    for (unsigned i = 0; i < pairs; ++i) program_moderation(registers, i, *Moderation::from_us(100));
    enable_vectors(registers, (std::uint64_t{1} << pairs) - 1);
    for (unsigned queue = 0; queue < reg::IVAR.count * 2; ++queue) {
      const reg::Ivar ivar = registers.read(reg::IVAR(queue / 2));
      const bool odd = queue % 2 != 0;
      EXPECT_EQ(odd ? ivar.rx_odd_valid : ivar.rx_even_valid, queue < receiving) << queue;
      EXPECT_EQ(odd ? ivar.tx_odd_valid : ivar.tx_even_valid, queue < pairs) << queue;
      if (queue < pairs) {
        EXPECT_EQ(odd ? ivar.rx_odd : ivar.rx_even, queue < receiving ? queue : 0);
        EXPECT_EQ(odd ? ivar.tx_odd : ivar.tx_even, queue);
        EXPECT_EQ(registers.read(reg::EITR(queue)).itr_interval, 50U);
      }
    }
    EXPECT_EQ(registers.read(reg::IVAR_MISC).other, pairs);
    EXPECT_TRUE(registers.read(reg::IVAR_MISC).other_valid);
    EXPECT_EQ(registers.read(reg::EIAC).rtxq, (1U << receiving) - 1) << "queue causes clear themselves: EICR is never read for them";
    EXPECT_EQ(registers.read(reg::EIAM).rtxq, 0U);
    EXPECT_TRUE(registers.read(reg::EIMS).lsc);
    EXPECT_EQ(registers.read(reg::EIMS_EX(1)).vectors, pairs > 32 ? (1U << (pairs - 32)) - 1 : 0U);
    program_queue_causes(registers, pairs, false);
    for (unsigned queue = 0; queue < reg::IVAR.count * 2; ++queue) {
      const reg::Ivar ivar = registers.read(reg::IVAR(queue / 2));
      const bool odd = queue % 2 != 0;
      EXPECT_EQ(odd ? ivar.rx_odd_valid : ivar.rx_even_valid, queue < receiving) << queue;
      EXPECT_EQ(odd ? ivar.tx_odd_valid : ivar.tx_even_valid, receiving <= queue && queue < pairs) << "no TX completion wakes a receiver";
    }
    mask_vector(registers, pairs - 1);
    EXPECT_EQ(registers.read(reg::EIMC_EX((pairs - 1) / 32)).vectors, 1U << (pairs - 1) % 32);
  }
}

TEST_F(StartUpTest, ItrIsWrittenInStepsAndLeavesTheRunningCount) {
  struct Case {
    std::uint32_t itr_us, raw;
  };
  // 8.2.3.5.12: bits 11:3 are the interval in steps of 2 us; bit 31 means "do not write the counters".
  for (const Case& now : {Case{0, 0x8000'0000}, Case{1, 0x8000'0008}, Case{8, 0x8000'0020}, Case{100, 0x8000'0190}, Case{1000, 0x8000'0fa0},
                          Case{1024, 0x8000'0ff8}}) {
    program_moderation(registers, 5, *Moderation::from_us(now.itr_us));
    EXPECT_EQ(registers.read(reg::EITR(5)).raw(), now.raw) << now.itr_us;
  }
}

TEST_F(StartUpTest, OneVectorIsMaskedAndUnmaskedAndRaisedIfWorkWaits) {
  mask_vector(registers, 3);
  EXPECT_EQ(registers.read(reg::EIMC_EX(0)).vectors, 1U << 3);
  EXPECT_EQ(registers.read(reg::EIMS_EX(0)).vectors, 0U);
  unmask_vector(registers, 3, false);
  EXPECT_EQ(registers.read(reg::EIMS_EX(0)).vectors, 1U << 3);
  EXPECT_EQ(registers.read(reg::EICS_EX(0)).vectors, 0U);
  unmask_vector(registers, 2, true);
  EXPECT_EQ(registers.read(reg::EIMS_EX(0)).vectors, 1U << 2);
  EXPECT_EQ(registers.read(reg::EICS_EX(0)).vectors, 1U << 2);
}

TEST_F(StartUpTest, RssTableAndKeyAreWritten) {
  program_receive(registers, model_82599, rss::table_for(3), 9000);
  for (unsigned i = 0; i < reg::RETA.count; ++i) {
    const reg::Reta entry = registers.read(reg::RETA(i));
    EXPECT_EQ(entry.entry0, 4 * i % 3);
    EXPECT_EQ(entry.entry1, (4 * i + 1) % 3);
    EXPECT_EQ(entry.entry2, (4 * i + 2) % 3);
    EXPECT_EQ(entry.entry3, (4 * i + 3) % 3);
  }
  EXPECT_EQ(registers.read(reg::RSSRK(0)).key, 0xda565a6dU) << "byte 0 of the key in the low bits";
  EXPECT_EQ(registers.read(reg::RSSRK(9)).key, 0xfa01acbeU);
  EXPECT_TRUE(registers.read(reg::HLREG0).jumbo_enable);
  EXPECT_EQ(registers.read(reg::MAXFRS).max_frame_bytes, 9004U);
  EXPECT_TRUE(registers.read(reg::RXCSUM).packet_checksum_disable) << "without it there is no hash in the descriptor";
  const reg::Mrqc functions = registers.read(reg::MRQC);
  EXPECT_TRUE(functions.rss_ipv4 && functions.rss_ipv4_tcp && functions.rss_ipv4_udp);
  EXPECT_TRUE(functions.rss_ipv6 && functions.rss_ipv6_tcp && functions.rss_ipv6_udp);
  EXPECT_FALSE(functions.rss_ipv6_ex || functions.rss_ipv6_ex_tcp || functions.rss_ipv6_ex_udp) << "receiving_core_ipv6 hashes the header";
}

// 3.7.7: to send pause frames, the card needs thresholds, a time and queues that do not drop. To obey pause frames, it needs one bit.
TEST_F(StartUpTest, PauseFramesAreSentAndObeyedAsSet) {
  constexpr std::uint32_t buffer_bytes = 512 * 1024;
  for (const std::uint32_t frame_bytes : {1514U, 15'500U}) {
    for (std::uint32_t which = 0; which <= 3; ++which) {
      program_flow_control(registers, model_82599, {.frame_bytes_max = frame_bytes, .flow_control = which});
      const bool asks = (which & flow_control_transmit) != 0;
      EXPECT_EQ(registers.read(reg::FCCFG).tfce_link, asks);
      EXPECT_EQ(registers.read(reg::FCRTH(0)).enable, asks);
      EXPECT_EQ(registers.read(reg::FCRTL(0)).xon_enable, asks);
      const std::uint32_t high_bytes = registers.read(reg::FCRTH(0)).threshold_16 * 16;
      EXPECT_EQ(high_bytes != 0, asks);
      if (asks) {
        EXPECT_LT(high_bytes + 4 * frame_bytes, buffer_bytes) << "no room for frames in flight";
        EXPECT_LT(registers.read(reg::FCRTL(0)).threshold_16 * 16, high_bytes);
        EXPECT_LT(registers.read(reg::FCRTV).refresh, registers.read(reg::FCTTV(0)).even) << "renewed before it ends";
      }
      EXPECT_EQ(registers.read(reg::MFLCN).link_enable, (which & flow_control_receive) != 0);
      EXPECT_TRUE(registers.read(reg::MFLCN).discard_pause) << "they are not for the stack";
      EXPECT_EQ(QueueOptions{.flow_control = which}.drops(), !asks) << "a queue that drops never fills the buffer";
    }
  }
}

// 8.2.3.9.16: the frame that is being fetched when the threshold is passed must still fit into the packet buffer.
TEST_F(StartUpTest, TheTransmitThresholdLeavesRoomForTheLargestFrame) {
  for (const std::uint32_t frame_bytes : {60U, 1514U, 9000U, 10'228U, 10'229U, 15'500U}) {
    program_receive(registers, model_82599, rss::table_for(1), frame_bytes);
    program_transmit(registers, frame_bytes);
    const std::uint32_t size_kib = registers.read(reg::TXPBSIZE(0)).size_kib;
    const std::uint32_t threshold_kib = registers.read(reg::TXPBTHRESH(0)).threshold_kib;
    EXPECT_EQ(size_kib, 160U);
    EXPECT_GT(threshold_kib, 0U);
    ASSERT_LT(threshold_kib, size_kib);
    EXPECT_GE((size_kib - threshold_kib) * 1024, frame_bytes + 12) << "two tags and the FCS";
    EXPECT_LE(threshold_kib, 0x96U) << "the value of a reset, Linux, DPDK and FreeBSD";
    if (frame_bytes <= 10'228) EXPECT_EQ(threshold_kib, 0x96U);
    for (unsigned i = 1; i < reg::TXPBSIZE.count; ++i) {
      EXPECT_EQ(registers.read(reg::TXPBSIZE(i)).raw(), 0U);
      EXPECT_EQ(registers.read(reg::TXPBTHRESH(i)).raw(), 0U);
    }
  }
}

// 4.6.11.3.4: after any earlier driver there is one class without credits, rates or pools.
TEST_F(StartUpTest, TrafficClassesOfAnEarlierDriverAreCleared) {
  card.all_registers_read(0xA5);
  program_receive(registers, model_82599, rss::table_for(1), 1514);
  program_transmit(registers, 1514);
  program_flow_control(registers, model_82599, {});
  EXPECT_EQ(registers.read(reg::RTTDQSEL).raw(), 0U);
  EXPECT_EQ(registers.read(reg::RTTDT1C).raw(), 0U);
  EXPECT_EQ(registers.read(reg::RTTBCNRC).raw(), 0U);
  EXPECT_EQ(registers.read(reg::RTTBCNRM).raw(), 0U);
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(registers.read(reg::RTTDT2C(i)).raw(), 0U) << i;
    EXPECT_EQ(registers.read(reg::RTTPT2C(i)).raw(), 0U) << i;
    EXPECT_EQ(registers.read(reg::RTRPT4C(i)).raw(), 0U) << i;
    EXPECT_EQ(registers.read(reg::FCRTH(i)).raw(), 0U) << i;
    EXPECT_EQ(registers.read(reg::FCRTL(i)).raw(), 0U) << i;
    EXPECT_EQ(registers.read(reg::ETQF(i)).raw(), 0U) << i;
  }
  EXPECT_EQ(registers.read(reg::RTTDCS).raw(), 0x00C0'0000U) << "TDPAC, VMPAC, TDRM 0, arbiter on, both bypasses";
  EXPECT_EQ(registers.read(reg::RTTPCS).raw(), 0x8900'0000U) << "TPPAC, TPRM 0, ARBD 0x224";
  EXPECT_EQ(registers.read(reg::RTRPCS).raw(), 0U);
  EXPECT_EQ(registers.read(reg::RTRUP2TC).raw(), 0U);
  EXPECT_EQ(registers.read(reg::RTTUP2TC).raw(), 0U);
  EXPECT_EQ(registers.read(reg::SECTXMINIFG).mark_insert, 0x10U);
  EXPECT_EQ(registers.read(reg::MTQC).raw(), 0U);
  EXPECT_EQ(registers.read(reg::VT_CTL).raw(), 0U);
  EXPECT_EQ(registers.read(reg::SYNQF).raw(), 0U);
  EXPECT_FALSE(registers.read(reg::MFLCN).priority_enable);
  EXPECT_EQ(registers.read(reg::MFLCN).priority_classes, 0U);
  const reg::Qde last = registers.read(reg::QDE);
  EXPECT_TRUE(last.write && !last.enable && last.queue == 0) << "only SRRCTL makes queues drop";
}

TEST_F(StartUpTest, DcaHintsNameTheCoreAndAreCleared) {
  registers.write(reg::DCA_RXCTRL(3), reg::DcaRxctrl::from_raw(0xA200));  // the reset value
  program_cache_hints(registers, 3, true, 0x1C);
  EXPECT_FALSE(registers.read(reg::DCA_CTRL).disable);
  const reg::DcaRxctrl receive = registers.read(reg::DCA_RXCTRL(3));
  EXPECT_TRUE(receive.descriptor_dca && receive.header_dca && receive.payload_dca);
  EXPECT_EQ(receive.cpu_id, 0x1CU);
  EXPECT_EQ(receive.raw() & 0xFF00, 0xA200U) << "ordering is not changed";
  EXPECT_TRUE(registers.read(reg::DCA_TXCTRL(3)).descriptor_dca);
  EXPECT_EQ(registers.read(reg::DCA_TXCTRL(3)).cpu_id, 0x1CU);
  EXPECT_EQ(registers.read(reg::DCA_TXCTRL(2)).raw(), 0U) << "another queue's";
  program_cache_hints(registers, 3, false, 0);
  EXPECT_TRUE(registers.read(reg::DCA_CTRL).disable);
  EXPECT_FALSE(registers.read(reg::DCA_RXCTRL(3)).payload_dca);
  EXPECT_FALSE(registers.read(reg::DCA_TXCTRL(3)).descriptor_dca);
}

// 7.4.5: the table has 4096 bits, of which the driver sets at most one.
TEST_F(StartUpTest, TheVlanTableHasOneMemberOrIsOff) {
  for (const std::uint32_t vlan : {1U, 31U, 32U, 4094U, 0U}) {
    program_vlan(registers, vlan);
    EXPECT_EQ(registers.read(reg::VLNCTRL).filter_enable, vlan != 0);
    for (unsigned id = 0; id < 4096; ++id)
      ASSERT_EQ(registers.read(reg::VFTA(id / 32)).bits >> id % 32 & 1, id == vlan && vlan != 0 ? 1U : 0U) << id << " of " << vlan;
  }
}

// 7.1.1.1: our address and 127 groups have a filter each. A further group's last 12 bits select one of 4096 bits. Old entries are cleared.
TEST_F(StartUpTest, GroupsAreComparedCompletelyWhileThereIsRoomAndThenHashed) {
  registers.write(reg::RAH(0), {.address_high = 0x0605, .valid = true});
  struct Case {
    unsigned count;
    bool ipv6;
  };
  for (const auto& [count, ipv6] : {Case{130, false}, Case{127, true}, Case{2, true}, Case{131, true}, Case{2, false}, Case{0, false}}) {
    const auto group = [ipv6](unsigned i) {
      const auto high = static_cast<std::uint8_t>(i >> 8), low = static_cast<std::uint8_t>(i);
      return ipv6 ? MacAddress{0x33, 0x33, 0xFF, 7, high, low} : MacAddress{1, 0, 0x5E, 7, high, low};
    };
    std::vector<MacAddress> groups;
    for (unsigned i = 0; i < count; ++i) groups.push_back(group(i * 3));
    program_multicast(registers, groups, false);
    const unsigned exact = std::min(count, 127U);
    for (unsigned i = 0; i < 127; ++i) {
      const reg::Rah high = registers.read(reg::RAH(i + 1));
      ASSERT_EQ(high.valid, i < exact) << i << " of " << count;
      if (i >= exact) continue;
      const MacAddress wanted = group(i * 3);
      EXPECT_EQ(high.address_high, wanted[4] | unsigned{wanted[5]} << 8);
      EXPECT_EQ(registers.read(reg::RAL(i + 1)).address_low, ipv6 ? 0x07FF3333U : 0x075E0001U);
    }
    std::set<unsigned> hashed;
    for (unsigned i = exact; i < count; ++i) hashed.insert(group(i * 3)[4] >> 4 | group(i * 3)[5] << 4);
    for (unsigned bit = 0; bit < 4096; ++bit)
      ASSERT_EQ(registers.read(reg::MTA(bit / 32)).bits >> bit % 32 & 1, hashed.count(bit)) << bit << " of " << count;
    EXPECT_EQ(registers.read(reg::MCSTCTRL).filter_enable, count > 127);
    EXPECT_FALSE(registers.read(reg::FCTRL).multicast_promiscuous) << "only while it changes";
  }
  program_multicast(registers, {}, true);
  EXPECT_TRUE(registers.read(reg::FCTRL).multicast_promiscuous);
  EXPECT_EQ(registers.read(reg::RAH(0)).address_high, 0x0605U) << "our own address is kept";
}

// 7.1.2.5: if a mask bit is missing, the filter compares a field that software has not set.
TEST_F(StartUpTest, APortIsSteeredOnlyByDestination) {
  registers.write(reg::FTQF(7), {.enable = true});
  program_receive(registers, model_82599, rss::table_for(1), 1514);
  EXPECT_FALSE(registers.read(reg::FTQF(7)).enable) << "the setting of an earlier driver";
  program_steering(registers, 0, 5002, 3);
  const reg::Ftqf filter = registers.read(reg::FTQF(0));
  EXPECT_TRUE(filter.enable);
  EXPECT_EQ(filter.protocol, 0U) << "TCP";
  EXPECT_TRUE(filter.mask_source_address && filter.mask_destination_address && filter.mask_source_port && filter.mask_pool);
  EXPECT_FALSE(filter.mask_destination_port);
  EXPECT_FALSE(filter.mask_protocol);
  EXPECT_EQ(registers.read(reg::SDPQF(0)).destination_port, 0x8A13U) << "5002 is 0x138A, in network order";
  EXPECT_EQ(registers.read(reg::L34TIMIR(0)).rx_queue, 3U);
  EXPECT_TRUE(registers.read(reg::L34TIMIR(0)).size_bypass);
}

TEST_F(StartUpTest, EachQueuesStatisticsAreReadFromItsOwnSet) {
  for (unsigned i = 0; i < 16; ++i) {
    registers.write(reg::QPRC(i), reg::Qprc::from_raw(100 + i));
    registers.write(reg::QBRC_L(i), reg::QbrcL::from_raw(1000 + i));
    registers.write(reg::QBRC_H(i), {.value = i % 16});
    registers.write(reg::QPTC(i), reg::Qptc::from_raw(200 + i));
    registers.write(reg::QBTC_L(i), reg::QbtcL::from_raw(2000 + i));
    registers.write(reg::QPRDC(i), reg::Qprdc::from_raw(300 + i));
  }
  registers.write(reg::STATUS, reg::Status::from_raw(0));
  Statistics statistics;
  ASSERT_TRUE(statistics.collect(registers).has_value());
  for (unsigned i = 0; i < 16; ++i) {
    const QueueStatistics& queue = statistics.queues[i];
    EXPECT_EQ(queue.received, 100U + i);
    EXPECT_EQ(queue.received_bytes, (std::uint64_t{i} << 32) + 1000 + i);
    EXPECT_EQ(queue.sent, 200U + i);
    EXPECT_EQ(queue.sent_bytes, 2000U + i);
    EXPECT_EQ(queue.no_descriptor, 300U + i);
  }
  clear_statistics(registers);
  EXPECT_EQ(registers.read(reg::RQSMR(3)).queue3, 15U);
  EXPECT_EQ(registers.read(reg::TQSM(2)).queue1, 9U);
}

// A counter that is missing in the table is never reported; a name that occurs twice is ambiguous.
TEST(Counters, EachHasItsOwnName) {
  std::multiset<std::string_view> names;
  neap::test::add_counter_names<log::Traffic>(names, traffic_counts);
  neap::test::add_counter_names<ReceiveCounters>(names, ReceiveQueueCounters::names, ReceiveCounters::names);
  neap::test::add_counter_names<TransmitCounters>(names, TransmitQueueCounters::names, TransmitCounters::names);
  neap::test::add_counter_names<QueuePairCounters>(names, QueuePairCounters::names);
  neap::test::add_counter_names<CardCounters>(names, NetCardCounters::names, CardCounters::names);
  Statistics{}.report({}, [&](std::string_view name, std::uint64_t) { names.insert(name); });
  for (const std::string_view name : names) EXPECT_EQ(names.count(name), 1U) << name;
}

TEST_F(StartUpTest, EveryStatisticIsReadAndReported) {
  card.all_registers_read(1);
  Statistics statistics;
  ASSERT_TRUE(statistics.collect(registers).has_value());
  unsigned told = 0;
  statistics.report({}, [&](std::string_view name, std::uint64_t value) {
    EXPECT_NE(value, 0U) << name;
    ++told;
  });
  EXPECT_EQ(told, (sizeof(PortStatistics) + sizeof(QueueStatistics)) / sizeof(std::uint64_t));
  statistics.queues[3].no_descriptor = 77;
  std::string of_one;
  statistics.report(3,
                    [&](std::string_view name, std::uint64_t value) { of_one += std::string(name) + '=' + std::to_string(value) + ' '; });
  EXPECT_NE(of_one.find("ixgbe.queue.no_descriptor=77 "), std::string::npos) << of_one;
  EXPECT_EQ(of_one.find("ixgbe.port."), std::string::npos) << of_one;

  const Statistics before = statistics;
  card.all_registers_read(0xFF);
  EXPECT_EQ(statistics.collect(registers).error().code, ErrorCode::closed);
  EXPECT_EQ(statistics.port.received, before.port.received) << "a card that is gone adds no counts";
  EXPECT_EQ(statistics.collect_dropped(registers, 3), 0U);
  EXPECT_EQ(statistics.queues[3].no_descriptor, before.queues[3].no_descriptor);
}

}  // namespace
}  // namespace neap::ixgbe
