// SPDX-License-Identifier: BSL-1.0
#include "kernel/boot_sequence.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "kernel/application.hpp"
#include "kernel/console.hpp"
#include "kernel/machine.hpp"
#include "tests/host/host_machine.hpp"

namespace neap {

const char* const application_name = "boot_sequence_test";
const char* const neap_version = "7.8.9";
const char* const neap_commit = "0123456789ab-dirty";
const char* const neap_build = "host";

task<int> application(Arguments& arguments) {
  const std::string mode = arguments.text("mode", "good", "what to do");
  arguments.finish();
  // Every selected core runs its loop by now.
  for (unsigned core = 0; core < core_count(); ++core) {
    if (co_await on_core(core, [] { return this_core(); }) != core) co_return 1;
  }
  co_await sleep_for(std::chrono::milliseconds(1));
  if (mode == "throw") throw std::domain_error("unwell");
  co_return mode == "good" ? 0 : 5;
}

namespace {

using machine::ExitStatus;

auto exits_with(ExitStatus status) { return testing::ExitedWithCode(static_cast<int>(status)); }

class BootSequenceDeathTest : public testing::Test {
 protected:
  BootSequenceDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
  static void run(std::string_view command_line) {
    host::set_command_line(command_line);
    run_kernel();
  }
};

TEST_F(BootSequenceDeathTest, StartsAllCoresAndExitsWithTheApplicationsResult) {
  EXPECT_EXIT(
      run(""), exits_with(ExitStatus::success),
      "cores: 1 package, 4 cores, 4 threads\ncores: package 0: 0 1 2 3\nneap: boot_sequence_test \\(7\\.8\\.9, 0123456789ab-dirty, host\\) "
      "on 4 cores\n");
  EXPECT_EXIT(run("cores=1"), exits_with(ExitStatus::success), "; 3 parked\n(.*\n)*neap: .* on 1 core\n");
  EXPECT_EXIT(run("cores=0-1"), exits_with(ExitStatus::success), "on 2 cores\n");
  EXPECT_EXIT(run("cores=3 mode=bad"), exits_with(ExitStatus::failure), "on 3 cores\n");
}

TEST_F(BootSequenceDeathTest, CoresThatDoNotStartAreCountedAndEndABootThatNamedThem) {
  host::set_broken_cores(1);
  EXPECT_EXIT(run(""), exits_with(ExitStatus::success), "neap: 3 of 4 cores run(.*\n)*neap: boot_sequence_test .* on 3 cores\n");
  EXPECT_EXIT(run("cores=4"), exits_with(ExitStatus::failure), "neap: 3 of 4 cores run.*\nneap: cores= asks for 4 cores");
  EXPECT_EXIT(run("cores=0-2"), exits_with(ExitStatus::failure), "neap: 2 of 3 cores run.*\nneap: cores= asks for 3 cores");
  host::set_broken_cores(0);
}

TEST_F(BootSequenceDeathTest, ExceptionOfTheApplicationIsAPanicWithItsText) {
  EXPECT_EXIT(run("mode=throw"), exits_with(ExitStatus::panic), "std::domain_error: unwell");
}

TEST_F(BootSequenceDeathTest, BadCommandLineStopsTheBootWithTheListOfAcceptedKeys) {
  EXPECT_EXIT(run("core=2"), exits_with(ExitStatus::bad_command_line),
              "core= is not known\naccepted:\ncores=  .*default 4.*\nsmt=  .*\nconsole=  .*\npanic=  .*\nwatchdog=  .*\nmode=  what to do");
  EXPECT_EXIT(run("cores=0,9"), exits_with(ExitStatus::bad_command_line), "cores=0,9 names a core that is not there \\(0 to 3\\)");
  EXPECT_EXIT(run("cores=5"), exits_with(ExitStatus::bad_command_line), "cores=5 is out of range \\(1 to 4\\)");
  EXPECT_EXIT(run("cores=0"), exits_with(ExitStatus::bad_command_line), "cores=0 is out of range");
}

}  // namespace
}  // namespace neap
