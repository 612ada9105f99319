// SPDX-License-Identifier: BSL-1.0
// Each core has its own state of the C library (errno, strtok, rand). The library's clocks return the machine's time, its streams write to
// the console, and opening a file fails as if the file did not exist. The same holds for C++'s streams, clocks and random numbers.
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <clocale>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <format>
#include <fstream>
#include <locale>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/target/check.hpp"

namespace {

using namespace neap;
using test::check;
using test::hidden;
using namespace std::chrono_literals;

std::array<std::atomic<const int*>, machine::cores_max> errno_places;
std::atomic<unsigned> set{0};

// All cores set errno at the same time, each to a number of its own. Each core must keep its number.
void check_errno() {
  const int own = 100 + static_cast<int>(this_core());
  errno_places[this_core()] = &errno;
  errno = own;
  set.fetch_add(1);
  const std::uint64_t begin_ns = machine::now_ns();
  while (set.load() < core_count() && machine::now_ns() - begin_ns < 60'000'000'000) machine::pause();
  check(errno == own, "errno is this core's", static_cast<std::uint64_t>(errno));
  check(std::malloc(hidden(~std::size_t{0} / 2)) == nullptr && errno == ENOMEM, "malloc sets errno");
  errno = 0;
  (void)std::strtol(hidden("99999999999999999999"), nullptr, 10);
  check(errno == ERANGE, "strtol sets errno");
}

void check_c() {
  std::array<char, 100> text{};
  check(std::snprintf(text.data(), text.size(), "%5.2f|%-6s|%#llx|%zu", 3.14159, "ab", 255LL, sizeof text) == 21 &&
            std::strcmp(text.data(), " 3.14|ab    |0xff|100") == 0,
        "snprintf");
  int number = 0;
  double real = 0;
  check(std::sscanf("17 2.5e3", "%d %lf", &number, &real) == 2 && number == 17 && real == 2500, "sscanf");
  std::array values{5, 3, 9, 1};
  std::qsort(values.data(), values.size(), sizeof(int),
             [](const void* a, const void* b) { return *static_cast<const int*>(a) - *static_cast<const int*>(b); });
  check(std::is_sorted(values.begin(), values.end()), "qsort");
  check(std::abs(std::sin(hidden(0.5)) - 0.479425538604203) < 1e-15 && std::pow(hidden(2.0), 0.5) == std::sqrt(hidden(2.0)), "math");
  std::srand(1);
  check(std::rand() != std::rand(), "rand");
  std::array words{'a', ' ', 'b', '\0'};
  check(std::strcmp(std::strtok(words.data(), " "), "a") == 0 && std::strcmp(std::strtok(nullptr, " "), "b") == 0, "strtok");
  check(std::getenv("HOME") == nullptr, "no environment");
  check(std::setlocale(LC_ALL, nullptr) != nullptr && std::strcmp(std::localeconv()->decimal_point, ".") == 0, "the C locale");
  static thread_local std::jmp_buf back;
  static thread_local int jumps = 0;
  if (setjmp(back) < 3) std::longjmp(back, ++jumps);
  check(jumps % 3 == 0, "longjmp");
}

void check_files() {
  errno = 0;
  check(std::fopen("/etc/passwd", "r") == nullptr && errno == ENOENT, "no file is there", static_cast<std::uint64_t>(errno));
  check(std::tmpfile() == nullptr, "no temporary file");
  check(std::remove("/a") != 0, "nothing to remove");
  std::ofstream out("/tmp/a");
  check(!out.is_open() && !out, "ofstream fails to open");
  std::ifstream in("/tmp/a");
  std::string line;
  check(!std::getline(in, line), "ifstream has nothing");
  check(std::getchar() == EOF, "standard input ends at once");
  std::clearerr(stdin);
}

void check_clocks() {
  const auto steady = std::chrono::steady_clock::now();
  const auto processor = std::clock();
  std::this_thread::sleep_for(2ms);
  check(std::chrono::steady_clock::now() - steady >= 2ms, "a short sleep lasts");
  check(std::clock() > processor, "clock goes on");
  const auto boot = std::chrono::nanoseconds(machine::now_ns());
  check(std::chrono::steady_clock::now().time_since_epoch() - boot < 60s, "the steady clock counts from boot");
  using std::chrono::system_clock;
  const auto wall = system_clock::now();
  const std::time_t seconds = std::time(nullptr);
  check(std::abs(std::difftime(seconds, system_clock::to_time_t(wall))) <= 60, "time and system_clock agree");
  check(wall > system_clock::from_time_t(1'600'000'000), "the wall clock is set", static_cast<std::uint64_t>(seconds));
  std::tm parts{};
  const std::time_t moment = 1'000'000'000;
  std::array<char, 40> text{};
  check(std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", gmtime_r(&moment, &parts)) == 19 &&
            std::strcmp(text.data(), "2001-09-09 01:46:40") == 0,
        "strftime");
  check(std::mktime(std::localtime(&moment)) == moment, "mktime");
  check(std::format("{:%F %T}", std::chrono::sys_seconds(std::chrono::seconds(moment))) == "2001-09-09 01:46:40", "chrono's format");
  const std::chrono::year_month_day day{std::chrono::floor<std::chrono::days>(system_clock::from_time_t(moment))};
  check(day == std::chrono::year(2001) / 9 / 9, "calendar");
  timespec resolution{};
  check(clock_getres(CLOCK_MONOTONIC, &resolution) == 0 && resolution.tv_sec == 0, "clock_getres");
}

void check_random() {
  std::random_device device;
  std::set<unsigned> seen;
  for (int i = 0; i < 64; ++i) seen.insert(device());
  check(seen.size() > 60, "random_device", seen.size());
  std::mt19937_64 engine(device());
  const double mean = [&] {
    std::normal_distribution<double> normal(5, 1);
    double sum = 0;
    for (int i = 0; i < 1'000; ++i) sum += normal(engine);
    return sum / 1'000;
  }();
  check(mean > 4 && mean < 6, "distributions");
  std::array<std::uint64_t, 32> bits{};
  for (auto& word : bits) word = machine::random_bits();
  std::sort(bits.begin(), bits.end());
  check(std::adjacent_find(bits.begin(), bits.end()) == bits.end(), "random bits do not repeat");
}

void check_streams() {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(3);
  out << std::hex << 255 << ' ' << std::fixed << 2.0 << ' ' << std::boolalpha << false;
  check(out.str() == "ff 2.000 false", out.str());
  std::stringstream both("1 2 x");
  int a = 0, b = 0, c = 7;
  both >> a >> b >> c;
  check(a == 1 && b == 2 && both.fail(), "a stream says that it failed");
  bool thrown = false;
  try {
    std::ifstream file;
    file.exceptions(std::ios::failbit);
    file.open("/nowhere");
  } catch (const std::ios_base::failure&) {
    thrown = true;
  }
  check(thrown, "and throws if asked to");
}

std::exception_ptr carried;
std::atomic<unsigned> rethrown{0};

/// Catches an exception here and rethrows it in an event on every core, at the same time.
task<void> check_exceptions_across_events() {
  try {
    throw std::runtime_error("from core 0");
  } catch (...) {
    carried = std::current_exception();
  }
  for (unsigned core = 0; core < core_count(); ++core) {
    const auto sent = spawn_on(core, [] {
      for (int i = 0; i < 200; ++i) {
        try {
          std::rethrow_exception(carried);
        } catch (const std::runtime_error& error) {
          if (std::string_view(error.what()) == "from core 0") rethrown.fetch_add(1);
        }
      }
    });
    check(sent.has_value(), "spawned");
  }
  const std::uint64_t begin_ns = machine::now_ns();
  while (rethrown.load() != 200 * core_count() && machine::now_ns() - begin_ns < 60'000'000'000) co_await sleep_for(1ms);
  check(rethrown.load() == 200 * core_count(), "an exception is caught in other events and on other cores", rethrown.load());
  carried = nullptr;
  check(std::uncaught_exceptions() == 0, "none is on its way");
}

}  // namespace

neap::task<int> neap::application(Arguments& arguments) {
  arguments.finish();
  for (unsigned core = 1; core < core_count(); ++core) check(spawn_on(core, check_errno).has_value(), "spawned");
  check_errno();
  for (unsigned core = 0; core < core_count(); ++core) {
    co_await on_core(core, [] {
      check_c();
      check_files();
      check_clocks();
      check_random();
      check_streams();
    });
    for (unsigned other = 0; other < core; ++other) check(errno_places[core] != errno_places[other].load(), "errno has a place a core");
  }
  co_await check_exceptions_across_events();
  check(std::printf("printf speaks %d\n", 4) == 16 && std::fputs("fputs speaks\n", stderr) >= 0, "the console's streams");
  co_return 0;
}
