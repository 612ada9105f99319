// SPDX-License-Identifier: BSL-1.0
#include "kernel/early_options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace neap {
namespace {

std::vector<SerialPort> serial(const EarlyOptions& options) {
  return {options.serial.begin(), options.serial.begin() + static_cast<std::ptrdiff_t>(options.serial_count)};
}

using Ports = std::vector<SerialPort>;

TEST(EarlyOptions, TheFirstSerialPortIsTheDefault) {
  for (const char* line : {"", " \t", "cores=2 ip=dhcp", "xconsole=vga", "console", "panic", "consol=vga console2=none"}) {
    const auto options = EarlyOptions::from(line);
    EXPECT_EQ(serial(options), (Ports{{.port = 0x3f8, .baud = 115200}})) << line;
    EXPECT_FALSE(options.vga || options.reboot_after_panic) << line;
  }
}

TEST(EarlyOptions, ConsoleListIsParsed) {
  const auto ports = [](std::string value) { return serial(EarlyOptions::from("cores=4\tconsole=" + value + " ip=x")); };
  EXPECT_EQ(ports("com2"), (Ports{{.port = 0x2f8}}));
  EXPECT_EQ(ports("serial,9600"), (Ports{{.port = 0x3f8, .baud = 9600}}));
  EXPECT_EQ(ports("com1,115200,0xe060,57600,com4"), (Ports{{.port = 0x3f8}, {.port = 0xe060, .baud = 57600}, {.port = 0x2e8}}));
  EXPECT_EQ(ports("vga"), Ports{});
  EXPECT_EQ(ports("none"), Ports{});
  EXPECT_TRUE(EarlyOptions::from("console=com1,38400,vga").vga);
  EXPECT_TRUE(EarlyOptions::from("console=vga,com3").vga);
  EXPECT_FALSE(EarlyOptions::from("console=none").vga);
  // The first word is used; Arguments complains about the second.
  EXPECT_EQ(serial(EarlyOptions::from("console=com2 console=com3")), (Ports{{.port = 0x2f8}}));
  EXPECT_TRUE(EarlyOptions::from("console=vga panic=reboot").reboot_after_panic);
  EXPECT_FALSE(EarlyOptions::from("panic=halt panic=reboot").reboot_after_panic);
}

TEST(EarlyOptions, CheckedHeapIsSelected) {
  EXPECT_TRUE(EarlyOptions::from("cores=2 heap=checked").checked_heap);
  for (const char* line : {"", "heap=plain", "heap=", "heap", "xheap=checked", "heap=checked2", "heap=plain heap=checked"}) {
    EXPECT_FALSE(EarlyOptions::from(line).checked_heap) << line;
  }
  Arguments arguments("heap=both");
  EarlyOptions::check(arguments);
  EXPECT_NE(arguments.complaints().find("heap=both"), std::string::npos);
}

TEST(EarlyOptions, MwaitIsAssumedToSleepIfSelected) {
  EXPECT_TRUE(EarlyOptions::from("mwait=assumed").assume_mwait);
  for (const char* line : {"", "mwait=found", "mwait=", "mwait=assume", "mwait=found mwait=assumed"}) {
    EXPECT_FALSE(EarlyOptions::from(line).assume_mwait) << line;
  }
  EXPECT_TRUE(EarlyOptions::from("demotion=kept").keep_demotion);
  for (const char* line : {"", "demotion=off", "demotion=", "demotion=off demotion=kept"}) {
    EXPECT_FALSE(EarlyOptions::from(line).keep_demotion) << line;
  }
  Arguments arguments("mwait=assume");
  EarlyOptions::check(arguments);
  EXPECT_EQ(arguments.complaints(), "mwait=assume is not one of: found | assumed\n");
}

TEST(EarlyOptions, MeasuredWakeUpTimesAreAList) {
  EXPECT_EQ(EarlyOptions::from("cores=2").wake_up_us, WakeTimes{});
  EXPECT_EQ(EarlyOptions::from("wake_up_times=c1:2us").wake_up_us, (WakeTimes{0, 2, 0, 0, 0, 0}));
  EXPECT_EQ(EarlyOptions::from("wake_up_times=c6:104us,c1:1us,c7:10000us,c3:80us,c1e:10us").wake_up_us,
            (WakeTimes{0, 1, 10, 80, 104, 10000}));
  for (const std::string word :
       {"",         ",",          "c1",      "c1:",          "c1:us",         "c1:2",       "c1:2ms",
        "c1:0us",   "c1:10001us", "c1:-2us", "c1:2us,",      "c1:2us,c1:3us", "halt:2us",   "c2:2us",
        "poll:2us", "menu:2us",   ":2us",    "table,c1:2us", "c1=2us",        "c1:2us:3us", "c1:99999999999999999999us"}) {
    EXPECT_EQ(EarlyOptions::from("wake_up_times=" + word).wake_up_us, WakeTimes{}) << word;
    Arguments arguments("wake_up_times=" + word);
    EarlyOptions::check(arguments);
    EXPECT_NE(arguments.complaints().find("wake_up_times=" + word), std::string::npos) << word;
  }
  for (const char* line : {"wake_up_times=c1:2us,c6:104us", "wake_up_times=table", ""}) {
    Arguments arguments(line);
    EarlyOptions::check(arguments);
    EXPECT_EQ(arguments.complaints(), "") << line;
  }
}

// A mistake in `console=` must not silence the machine.
TEST(EarlyOptions, BadValuesChangeNothingAndStopTheBoot) {
  for (const std::string value : {"",           ",",
                                  "com5",       "com",
                                  "COM1",       "vga,vga",
                                  "none,vga",   "vga,none",
                                  "none,none",  "9600",
                                  "vga,9600",   "com1,",
                                  "com1,com1",  "com1,serial",
                                  "com1,0x3f8", "com1,9600,9600",
                                  "com1,0",     "com1,115201",
                                  "com1,-1",    "com1,99999999999",
                                  "0x3f9",      "0x",
                                  "0x80",       "0x10000",
                                  "0x3f8x",     "com1,com2,com3,com4,0x100",
                                  ",com1"}) {
    EXPECT_EQ(serial(EarlyOptions::from("console=" + value)), Ports{SerialPort{}}) << value;
    Arguments arguments("console=" + value);
    EarlyOptions::check(arguments);
    EXPECT_TRUE(arguments.complaints().starts_with("console=" + value + ' ')) << value << ": " << arguments.complaints();
  }
  Arguments good("console=com2,9600,vga panic=reboot");
  EarlyOptions::check(good);
  EXPECT_EQ(good.complaints(), "");
  EXPECT_NE(good.accepted().find("panic=  "), std::string::npos);
  Arguments bad("panic=never");
  EarlyOptions::check(bad);
  EXPECT_EQ(bad.complaints(), "panic=never is not one of: halt | reboot\n");
}

}  // namespace
}  // namespace neap
