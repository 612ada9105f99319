// SPDX-License-Identifier: BSL-1.0
// Pure functions: lines, words, addresses, bounds, the log's header and a stream's blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "drivers/ixgbe/settings.hpp"
#include "kernel/arguments.hpp"
#include "kernel/machine.hpp"
#include "kernel/policy.hpp"
#include "kernel/policy_rows.hpp"
#include "observe/allow_list.hpp"
#include "observe/command_syntax.hpp"
#include "observe/line.hpp"
#include "observe/log_file.hpp"
#include "observe/options.hpp"
#include "observe/stream_block.hpp"
#include "observe/testing.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::observe {
namespace {

using Outcome = LineReader::Outcome;

TEST(LineReader, FindsLinesInAnyPieces) {
  for (std::size_t piece = 1; piece < 20; ++piece) {
    LineReader reader;
    std::vector<std::string> lines;
    const std::string text = "status\nitr,8\r\n\n half";
    for (std::size_t at = 0; at < text.size(); at += piece) {
      std::string_view bytes = std::string_view(text).substr(at, piece);
      while (!bytes.empty()) {
        if (reader.take(bytes) == Outcome::line) lines.emplace_back(reader.text());
      }
    }
    EXPECT_EQ(lines, (std::vector<std::string>{"status", "itr,8\r", ""}));
    EXPECT_TRUE(reader.halfway());
  }
}

TEST(LineReader, KeepsNoMoreThanALine) {
  LineReader reader;
  const std::string longest(line_bytes_max, 'x');
  for (const auto& [extra, wanted] : {std::pair{"", Outcome::line}, std::pair{"y", Outcome::too_long}}) {
    const std::string text = longest + extra + "\nnext\n";
    std::string_view bytes = text;
    EXPECT_EQ(reader.take(bytes), wanted);
    EXPECT_FALSE(reader.halfway());
    EXPECT_EQ(reader.take(bytes), Outcome::line);
    EXPECT_EQ(reader.text(), "next");
  }
}

TEST(Words, AreSplitAtCommasAndTrimmed) {
  EXPECT_EQ(*split_words("itr,8us,1"), (std::vector<std::string_view>{"itr", "8us", "1"}));
  EXPECT_EQ(*split_words(" \titr ,\t8 us , 1 \r"), (std::vector<std::string_view>{"itr", "8 us", "1"}));
  for (const char* bad : {"", " ", "\r", ",", "itr,", ",itr", "itr,,1", "itr,\x01", "\xff", "a\r\r"}) EXPECT_FALSE(split_words(bad)) << bad;
}

TEST(Usage, DefinesTheNumberOfWordsAndALastCore) {
  const Shape itr = shape_of("itr,TIME[,CORE]");
  EXPECT_EQ(itr.words_min, 1U);
  EXPECT_EQ(itr.words_max, 2U);
  EXPECT_TRUE(itr.core_last);
  EXPECT_EQ(shape_of("stop").words_max, 0U);
  EXPECT_EQ(shape_of("stream,MODE[,run=N][,CORE=POSITION...]").words_max, any_number);
  EXPECT_FALSE(shape_of("stream,MODE[,run=N][,CORE=POSITION...]").core_last);
  const std::string_view words[] = {"itr", "8", "3"};
  EXPECT_EQ(check_words("itr,TIME[,CORE]", words, 4)->core, 3U);
  EXPECT_EQ(check_words("itr,TIME[,CORE]", words, 4)->words.size(), 1U);
  EXPECT_EQ(check_words("itr,TIME[,CORE]", words, 3).error(), "there is no core '3' (0 to 2, or all)");
  EXPECT_EQ(check_words("itr,TIME[,CORE]", std::span(words).first(2), 4)->core, std::nullopt);
  EXPECT_EQ(check_words("stop", words, 4).error(), "usage: stop");
}

TEST(Bounds, AreATimeOrANumberOfRequests) {
  const auto parse = [](std::string_view text) { return parse_run_bounds(std::span(&text, 1)); };
  EXPECT_EQ(parse_run_bounds({})->time_ns, 0U);
  EXPECT_EQ(parse("10s")->time_ns, 10'000'000'000U);
  EXPECT_EQ(parse("500ms")->time_ns, 500'000'000U);
  EXPECT_EQ(parse("100000")->requests, 100'000U);
  for (const char* bad : {"0", "0s", "10", "1x", "-1", "s", "10ss", "1.5s", "0x10", "99999999999999999999", "9999999999999999s"}) {
    EXPECT_EQ(parse(bad).has_value(), std::string_view(bad) == "10") << bad;
  }
}

TEST(StreamRequest, NamesRunAndPositionsOnce) {
  const auto parse = [](std::vector<std::string_view> words) { return parse_stream_request(words, 4); };
  const auto wanted = parse({"live", "run=3", "0=20480", "2 = 18432"});
  ASSERT_TRUE(wanted.has_value());
  EXPECT_TRUE(wanted->live);
  EXPECT_EQ(wanted->run, 3U);
  EXPECT_EQ(wanted->positions, (std::vector<std::uint64_t>{20480, 0, 18432, 0}));
  for (const std::vector<std::string_view>& bad : std::vector<std::vector<std::string_view>>{{},
                                                                                             {"never"},
                                                                                             {"live", "run=0"},
                                                                                             {"live", "run=1", "run=1"},
                                                                                             {"live", "4=1"},
                                                                                             {"live", "1=1", "1=2"},
                                                                                             {"live", "1"},
                                                                                             {"live", "1="},
                                                                                             {"live", "=1"},
                                                                                             {"live", "run=4294967296"},
                                                                                             {"live", "1=-1"},
                                                                                             {"live", "1=18446744073709551615"}}) {
    EXPECT_FALSE(parse(bad).has_value());
  }
}

TEST(AllowList, IsTheOwnNetworkByDefault) {
  const net::Ipv4Address own{0x0A000205}, mask{0xFFFFFF00};
  const AllowList list;
  EXPECT_TRUE(list.allows(net::Ipv4Address{0x0A000202}, own, mask));
  EXPECT_FALSE(list.allows(net::Ipv4Address{0x0A000302}, own, mask));
  EXPECT_TRUE(list.allows(*net::Address::parse("fe80::1"), own, mask));
  EXPECT_FALSE(list.allows(*net::Address::parse("2001:db8::1"), own, mask));
  EXPECT_FALSE(list.allows(net::Ipv4Address{0x0A000202}, {0}, {0}));  // a machine without an address allows no client
  EXPECT_EQ(list.to_string(own, mask), "10.0.2.0/24");
}

// The configured network may be a whole address class, for example 10.0.0.0/8. The default must not allow all of it, because each allowed
// address can switch the machine off.
TEST(AllowList, OfALargeNetworkOnlyTheNeighbourhoodIsAllowedByDefault) {
  const net::Ipv4Address own{0x0A000205}, near{0x0A0002FE}, far{0x0A000302};
  const AllowList list;
  for (const std::uint32_t mask : {0xFF000000U, 0xFFFE0000U, 0x00000000U, 0xFF00FF00U, 0x00FFFFFFU}) {
    EXPECT_FALSE(list.allows(far, own, {mask})) << mask;
    EXPECT_TRUE(list.allows(near, own, {mask})) << mask;
    EXPECT_TRUE(list.narrowed({mask})) << mask;
    EXPECT_EQ(list.to_string(own, {mask}), "10.0.2.0/24");
  }
  EXPECT_TRUE(list.allows(far, own, {0xFFFF0000}));
  EXPECT_FALSE(list.narrowed({0xFFFF0000}));
  EXPECT_FALSE(list.allows(net::Ipv4Address{0x0A000204}, own, {0xFFFFFFFF}));
  const auto said = AllowList::parse("10.0.0.0/8");
  EXPECT_TRUE(said->allows(far, own, {0xFF000000}));
  EXPECT_FALSE(said->narrowed({0xFF000000}));
}

TEST(AllowList, TakesAddressesAndNetworks) {
  const auto list = AllowList::parse("10.1.2.3,192.168.0.0/16");
  ASSERT_TRUE(list.has_value());
  EXPECT_TRUE(list->allows(net::Ipv4Address{0x0A010203}, {}, {}));
  EXPECT_FALSE(list->allows(net::Ipv4Address{0x0A010204}, {}, {}));
  EXPECT_TRUE(list->allows(net::Ipv4Address{0xC0A8FFFF}, {}, {}));
  EXPECT_FALSE(list->allows(net::Ipv4Address{0xC0A90000}, {}, {}));
  EXPECT_EQ(list->to_string({}, {}), "10.1.2.3/32,192.168.0.0/16");
  EXPECT_FALSE(list->allows(*net::Address::parse("fe80::1"), {}, {}));
  const auto of_both = AllowList::parse("10.0.0.0/8,2001:db8:1::/48");
  ASSERT_TRUE(of_both.has_value());
  EXPECT_TRUE(of_both->allows(net::Ipv4Address{0x0A000001}, {}, {}));
  EXPECT_TRUE(of_both->allows(*net::Address::parse("2001:db8:1:ffff::1"), {}, {}));
  EXPECT_FALSE(of_both->allows(*net::Address::parse("2001:db8:2::1"), {}, {}));
  EXPECT_EQ(of_both->to_string({}, {}), "10.0.0.0/8,2001:db8:1::/48");
  EXPECT_FALSE(AllowList::parse("0.0.0.0/0")->allows(*net::Address::parse("2001:db8::1"), {}, {}));
  EXPECT_TRUE(AllowList::parse("any")->allows(*net::Address::parse("2001:db8::1"), {}, {}));
  EXPECT_TRUE(AllowList::parse("any")->allows(net::Ipv4Address{0x08080808}, {}, {}));
  EXPECT_TRUE(AllowList::parse("0.0.0.0/0")->allows(net::Ipv4Address{0x08080808}, {}, {}));
  for (const char* bad : {"", "10.1.2", "10.1.2.3.4", "10.1.2.256", "10.1.2.3/33", "10.1.2.3/16", "10.1.2.3,", "a.b.c.d", "10.1.2.0x3",
                          "any,10.1.2.3", "10.1.2.3/", "10.1.2.3/+8", " 10.1.2.3", "2001:db8::/129", "2001:db8::1/64", "fe80::1%1"}) {
    EXPECT_FALSE(AllowList::parse(bad).has_value()) << bad;
  }
}

TEST(Crc32c, IsCastagnolis) {
  // The usual check value, then RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c(std::as_bytes(std::span("123456789", 9))), 0xE3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
}

template <typename T>
T at(const Header& header, std::size_t offset) {
  T value;
  std::memcpy(&value, header.data() + offset, sizeof value);
  return value;
}

TEST(LogFile, HeaderIsWhatItsFormatSays) {
  const BootFacts boot{.boot_id = 0x0123456789abcdef, .tsc_at_boot = 77, .control_core = 2};
  const LogPart part{.run = 3, .core = 0, .extent = {.first = 10, .end = 15, .unwritten = 4}};
  const Header header = make_header(boot, part);
  EXPECT_EQ(std::memcmp(header.data(), "NEAPLOG\n", 8), 0);
  EXPECT_EQ(at<std::uint32_t>(header, 8), 1U);
  ASSERT_EQ(header.size(), header_bytes);
  EXPECT_EQ(at<std::uint32_t>(header, 12), header_bytes);
  EXPECT_EQ(at<std::uint32_t>(header, 16), 64U);
  EXPECT_EQ(at<std::uint32_t>(header, 20), 0U);
  EXPECT_EQ(at<std::uint64_t>(header, 24), 5U);
  EXPECT_EQ(at<std::uint64_t>(header, 32), 10U);
  EXPECT_EQ(at<std::uint64_t>(header, 40), 4U);
  EXPECT_EQ(at<std::uint64_t>(header, 48), machine::timestamp_hz());
  const auto json_bytes = at<std::uint32_t>(header, 56);
  const std::string json(reinterpret_cast<const char*>(header.data()) + 64, json_bytes);
  EXPECT_EQ(json, make_header_json(boot, part));
  Crc32c crc;
  crc.add(std::span(header).first(60));
  crc.add(std::span(header).subspan(64, json_bytes));
  EXPECT_EQ(at<std::uint32_t>(header, 60), crc.value());
  for (std::size_t i = 64 + json_bytes; i < header_bytes - 1; ++i) ASSERT_EQ(header[i], std::byte{' '});
  EXPECT_EQ(header.back(), std::byte{'\n'});
  EXPECT_EQ(make_header(boot, part), header);
  for (const char* member :
       {R"("format":"neap-log")", R"("boot_id":"0123456789abcdef")", R"("run":3)", R"("application":"observed")", R"("core":0)",
        R"("control_core":2)", R"("tsc_at_boot":77)", R"("when_full":"stop")", R"("1":"record")", R"("20":"settings")", R"("32":"idle")",
        R"("33":"mark")", R"("idle_states":["halt","c1","c1e","c3","c6","c7","poll","monitor","menu"])"}) {
    EXPECT_NE(json.find(member), std::string::npos) << member << " in " << json;
  }
}

// Tools build their types from the header. The header must name all fields of kernel/log_record.hpp.
TEST(LogFile, TheHeaderNamesEveryFieldAndSetting) {
  const std::string json = make_header_json({}, {.run = 1, .core = 0, .extent = {}});
  for (const log::Form& form : log::forms) {
    EXPECT_NE(json.find('"' + std::string(form.name) + "\":\"" + std::string(form.fields) + '"'), std::string::npos) << json;
  }
  const std::string settings = json.substr(json.find("\"settings\":{\"0\""));
  for (const policy::Row* const row : policy::rows()) {
    const auto number = std::to_string(static_cast<unsigned>(row->setting));
    EXPECT_NE(settings.find('"' + number + "\":\"" + policy::log_description(*row) + '"'), std::string::npos) << settings;
  }
  for (const char* member : {R"("0":"idle:idle_state:choice")", R"("1":"itr:itr_us::us")", R"("21":"tso::choice::off|copy|chain")"}) {
    EXPECT_NE(settings.find(member), std::string::npos) << member << " in " << settings;
  }
}

TEST(StreamBlock, LiesAsItsFormatSays) {
  EXPECT_EQ(offsetof(BlockHeader, type), 4U);
  EXPECT_EQ(offsetof(BlockHeader, core), 6U);
  EXPECT_EQ(offsetof(BlockHeader, number), 8U);
  EXPECT_EQ(offsetof(BlockHeader, position), 16U);
  EXPECT_EQ(offsetof(BlockHeader, payload_bytes), 24U);
  EXPECT_EQ(offsetof(BlockHeader, payload_crc32c), 28U);
  EXPECT_EQ(offsetof(BlockHeader, count), 32U);
  EXPECT_EQ(offsetof(BlockHeader, run), 40U);
  EXPECT_EQ(offsetof(BlockHeader, boot_id), 48U);
  EXPECT_EQ(offsetof(BlockHeader, header_crc32c), 60U);
  BlockHeader header;
  EXPECT_EQ(std::memcmp(&header, "NBLK", 4), 0);
}

TEST(Options, AreReadAndRefusedByName) {
  Arguments good(
      "log=1000 log_full=overwrite log_sample=500us log_idle=on control=6000 control_token=12345678 control_allow=10.0.0.0/8 itr=8us");
  const Options options = Options::from(good, {});
  EXPECT_EQ(good.complaints(), "");
  EXPECT_EQ(options.log.entries_per_core, 1024U);
  EXPECT_EQ(options.log.when_full, log::WhenFull::overwrite);
  EXPECT_EQ(options.log.sample_period_us, 500U);
  EXPECT_TRUE(options.log.idle_records);
  EXPECT_EQ(options.control_port, 6000);
  EXPECT_EQ(options.token, "12345678");
  EXPECT_EQ(good.shown().find("12345678"), std::string::npos);

  Arguments by_interrupts("log_sample=100");
  const Options sampled = Options::from(by_interrupts, {});
  EXPECT_EQ(by_interrupts.complaints(), "");
  EXPECT_EQ(sampled.log.sample_records, 100U);
  EXPECT_EQ(sampled.log.sample_period_us, 0U);
  EXPECT_EQ(options.log.sample_records, 0U);

  Arguments none("");
  EXPECT_EQ(Options::from(none, {}).control_port, 5002);
  EXPECT_EQ(none.complaints(), "");
  Arguments off("control=off log=0");
  EXPECT_EQ(Options::from(off, {}).control_port, std::nullopt);
  EXPECT_EQ(off.complaints(), "");

  for (const char* bad : {"log=many", "log_full=sometimes", "log_sample=0", "log_sample=4294967296", "log_sample=10ns", "log_sample=9999s",
                          "log_idle=perhaps", "control=0", "control=65536", "control=on", "control_token=short", "control_token=with,comma",
                          "control_allow=everybody", "control_core=0", "control_core=99", "control_core=-1"}) {
    Arguments arguments(bad);
    (void)Options::from(arguments, {});
    EXPECT_NE(arguments.complaints(), "") << bad;
    EXPECT_EQ(arguments.complaints().find("with,comma"), std::string::npos);
  }
}

TEST(Options, NameEventsThatTheCpuHasCountersFor) {
  PowerAbilities abilities;
  abilities.free_event_counters = 2;
  host::set_power_abilities(abilities);
  Arguments good("log_events=branch_misses+event=0xd1,umask=0x20 dialect=ebbrt");
  const Options options = Options::from(good, {});
  EXPECT_EQ(good.complaints(), "");
  EXPECT_EQ(options.dialect, Dialect::ebbrt);
  EXPECT_EQ(options.log.events_count, 2U);
  EXPECT_EQ(options.log.events[1], 0x4320d1U);
  EXPECT_EQ(options.events, (std::vector<std::string>{"branch_misses", "event=0xd1,umask=0x20"}));
  for (const char* bad :
       {"log_events=", "log_events=+", "log_events=nothing", "log_events=branch_misses+", "log_events=branch_misses+branch_misses",
        "log_events=branch_misses+event=0xd1,umask=0x20+instructions", "dialect=linux"}) {
    Arguments arguments(bad);
    (void)Options::from(arguments, {});
    EXPECT_NE(arguments.complaints(), "") << bad;
  }
  host::set_power_abilities({});
}

TEST(Commands, AreDocumentedAsTheyAre) {
  std::ifstream file(NEAP_CONTROL_DOCUMENT);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(text.empty());
  std::size_t documented = 0;
  for (std::size_t at = 0; (at = text.find("\n### `", at)) != std::string::npos; ++at) ++documented;
  EXPECT_EQ(documented, built_in_commands().size());
  for (const Command& command : built_in_commands()) {
    const std::string entry = "\n### `" + std::string(command.usage) + "`\n" + std::string(command.help) + "\n";
    EXPECT_NE(text.find(entry), std::string::npos) << entry;
  }
  for (const Alias& alias : aliases()) EXPECT_NE(text.find('`' + std::string(alias.name)), std::string::npos) << alias.name;
}

}  // namespace
}  // namespace neap::observe
