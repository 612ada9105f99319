// SPDX-License-Identifier: BSL-1.0
#include "kernel/core_choice.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernel/console.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {
namespace {

using machine::CorePlace;

/// Two packages of two cores with two threads each, in the usual order of firmware: the first threads of all cores come first.
std::vector<CorePlace> eight() {
  std::vector<CorePlace> places;
  for (unsigned thread = 0; thread < 2; ++thread) {
    for (unsigned core = 0; core < 4; ++core) {
      places.push_back({.package = core / 2, .core = core % 2, .thread = thread, .running = machine::cores_max});
    }
  }
  return places;
}

std::string chosen(std::string_view text, bool smt = true) {
  const auto set = choose_cores(text, smt, eight());
  if (!set) return set.error();
  std::string list;
  for (std::size_t i = 0; i < set->size(); ++i) {
    if (set->test(i)) list += std::to_string(i) + ' ';
  }
  return list;
}

TEST(CoreChoice, NumberSelectsTheFirstCoresAndListTheNamedOnes) {
  EXPECT_EQ(chosen(""), "0 1 2 3 4 5 6 7 ");
  EXPECT_EQ(chosen("3"), "0 1 2 ");
  EXPECT_EQ(chosen("8"), "0 1 2 3 4 5 6 7 ");
  EXPECT_EQ(chosen("0-0"), "0 ");
  EXPECT_EQ(chosen("0,2-3,7"), "0 2 3 7 ");
  EXPECT_EQ(chosen("6-7,0-1,1"), "0 1 6 7 ");
}

TEST(CoreChoice, WithoutSmtOneThreadOfEachCoreRuns) {
  EXPECT_EQ(chosen("", false), "0 1 2 3 ");
  EXPECT_EQ(chosen("3", false), "0 1 2 ");
  EXPECT_EQ(chosen("5", false), "is out of range (1 to 4)");
  EXPECT_EQ(chosen("0,4,5", false), "0 5 ");
}

TEST(CoreChoice, ImpossibleChoicesAreRefusedWithAReason) {
  EXPECT_EQ(chosen("0"), "is out of range (1 to 8)");
  EXPECT_EQ(chosen("9"), "is out of range (1 to 8)");
  EXPECT_EQ(chosen("0-8"), "names a core that is not there (0 to 7)");
  EXPECT_EQ(chosen("1,2"), "must name core 0, the one that booted");
  for (const char* text : {"two", "0-", "-1", "3-1", "0,,1", "0,x", "0 1", "99999999999999999999"}) {
    EXPECT_EQ(chosen(text), "is not a list of cores, like 0-3,6") << text;
  }
}

TEST(CoreChoice, RunningCoresArePrintedByPackage) {
  host::HostMachine machine{2};
  static_cast<void>(host::take_console_text());
  print_cores();
  EXPECT_EQ(host::take_console_text(), "cores: 1 package, 4 cores, 4 threads; 2 parked\ncores: package 0: 0 1 - -\n");
}

}  // namespace
}  // namespace neap
