// SPDX-License-Identifier: BSL-1.0
#include "kernel/x86/power/events.hpp"

#include <gtest/gtest.h>

namespace neap::x86::power {
namespace {

// Leaf 0Ah of an E5-2690: version 3, four counters of 48 bits, seven architectural events, all of them available.
constexpr std::uint32_t leaf_eax = 0x07300403;
constexpr std::uint32_t enabled = 0x43'0000;  // user, kernel, enabled

TEST(Events, ArchitecturalOnesFollowCpuid) {
  const EventFacts all = event_facts(leaf_eax, 0, 0x2d);
  EXPECT_EQ(all.counters, 4);
  EXPECT_EQ(all.architectural, 0x7f);
  EXPECT_EQ(*parse_event("llc_misses", all), enabled | 0x412e);
  EXPECT_EQ(*parse_event("branch_misses", all), enabled | 0x00c5);
  // A set bit of EBX means that the event is not available.
  const EventFacts without = event_facts(leaf_eax, 1U << 6, 0x2d);
  EXPECT_EQ(parse_event("branch_misses", without).error(), "CPUID says that this CPU cannot count branch_misses");
  EXPECT_EQ(event_names(without).find("branch_misses"), std::string::npos);
  // Bits of EBX beyond the number of valid bits have no meaning.
  EXPECT_FALSE(parse_event("branch_misses", event_facts(0x06300403, 0, 0x2d)).has_value());
  EXPECT_EQ(event_facts(0xff300403, 0, 0x2d).architectural, 0x7f);
}

TEST(Events, ModelsHaveTheirOwn) {
  const EventFacts sandy_bridge = event_facts(leaf_eax, 0, 0x2d), sapphire_rapids = event_facts(0x08300805, 0, 0x8f);
  EXPECT_EQ(*parse_event("mem_load_uops_retired.llc_miss", sandy_bridge), enabled | 0x20d1);
  EXPECT_EQ(*parse_event("mem_load_retired.l3_miss", sapphire_rapids), enabled | 0x20d1);
  EXPECT_FALSE(parse_event("mem_load_retired.l3_miss", sandy_bridge).has_value());
  EXPECT_EQ(event_names(event_facts(leaf_eax, 0, 0)),
            "core_cycles instructions reference_cycles llc_references llc_misses branches branch_misses");
  const std::string why = parse_event("mem_load_retired.l3_mis", sapphire_rapids).error();
  EXPECT_NE(why.find("mem_load_retired.l3_miss"), std::string::npos) << why;
}

TEST(Events, TheRawFormIsPerfs) {
  const EventFacts facts = event_facts(leaf_eax, 0, 0);
  EXPECT_EQ(*parse_event("event=0xd1,umask=0x20", facts), enabled | 0x20d1);
  EXPECT_EQ(*parse_event("event=162", facts), enabled | 0xa2);
  EXPECT_EQ(*parse_event("event=0xa3,umask=5,cmask=5", facts), enabled | 0x0500'05a3U);
  EXPECT_EQ(*parse_event("umask=0x1,event=0x48,cmask=1,edge", facts), enabled | 0x0104'0148U);
  EXPECT_EQ(*parse_event("event=0xc2,umask=1,cmask=1,inv", facts), enabled | 0x0180'01c2U);
  for (const char* bad : {"event=", "event=256", "event=-1", "umask=1", "event=1,event=2", "event=1,umask", "event=1,any", "event=1,edge=1",
                          "event=1,,umask=1", "event=1,", "=", "", "event", "event=0xd1 umask=0x20"}) {
    EXPECT_FALSE(parse_event(bad, facts).has_value()) << bad;
  }
}

TEST(Events, ACpuWithoutCountersCountsNone) {
  EXPECT_EQ(parse_event("event=0xd1", event_facts(0, 0, 0x2d)).error(), "this CPU has no counters for events");
}

}  // namespace
}  // namespace neap::x86::power
