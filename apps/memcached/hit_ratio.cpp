// SPDX-License-Identifier: BSL-1.0
// Neap's store beside stock memcached under the same requests, for `./neap bench hit-ratio` (tools/bench/hit_ratio.py).
//
// Each request gets a key and, if it misses, sets it. Both sides serve each batch of requests before the next batch begins, so both see the
// same times of use. Neap's store uses the kernel's own heap, so that its memory can be counted in pages. Hits are counted in the second
// half of the requests, when the caches are full.
//
// Usage: memcached_hit_ratio WORKLOAD MEMORY_BYTES REQUESTS PORT. With port 0, only Neap's store runs. The output has one line for each
// number: its name, Neap's value and stock memcached's value.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "apps/memcached/store.hpp"
#include "apps/memcached/test_server.hpp"
#include "kernel/memory/heap.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "tests/host/host_machine.hpp"

namespace neap::memcached {
namespace {

constexpr std::uint32_t batch_requests = 256;
constexpr std::uint32_t value_bytes_max = 1 << 20;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "memcached_hit_ratio: %s\n", what);
  std::exit(1);
}

/// A workload: `keys` with a Zipf popularity, and their sizes. Without keys, each request has a key of its own. docs/load.md names the
/// sources.
struct Workload {
  std::string_view name;
  std::uint32_t keys;
  double alpha;
  double set_share;              ///< of requests that set the key whether it is stored or not
  std::uint32_t scan_every = 0;  ///< after so many requests, `scan_keys` keys follow that are requested only once; 0: never
  std::uint32_t scan_keys = 0;
  enum class Sizes : std::uint8_t { fixed, exponential, etc } sizes = Sizes::fixed;
  std::uint32_t key_bytes = 16;
  std::uint32_t value_bytes = 100;  ///< with `exponential`, the mean
};
constexpr Workload workloads[] = {
    {.name = "zipf", .keys = 1'000'000, .alpha = 0.99, .set_share = 0},
    {.name = "scans", .keys = 1'000'000, .alpha = 0.99, .set_share = 0, .scan_every = 100'000, .scan_keys = 50'000},
    {.name = "etc", .keys = 1'000'000, .alpha = 0.99, .set_share = 0, .sizes = Workload::Sizes::etc},
    {.name = "fill_10", .keys = 0, .alpha = 0, .set_share = 0, .value_bytes = 10},
    {.name = "fill_100", .keys = 0, .alpha = 0, .set_share = 0, .value_bytes = 100},
    {.name = "fill_1000", .keys = 0, .alpha = 0, .set_share = 0, .value_bytes = 1000},
    {.name = "twitter",
     .keys = 1'000'000,
     .alpha = 1.1401,
     .set_share = 0.06,
     .sizes = Workload::Sizes::exponential,
     .key_bytes = 33,
     .value_bytes = 322},
};

std::uint64_t scrambled(std::uint64_t number) {
  number += 0x9E37'79B9'7F4A'7C15;
  number = (number ^ number >> 30) * 0xBF58'476D'1CE4'E5B9;
  number = (number ^ number >> 27) * 0x94D0'49BB'1331'11EB;
  return number ^ number >> 31;
}

/// Value sizes of Facebook's ETC pool, as in bench/load/src/distributions.rs: a table for 0 to 14 bytes, and a generalised Pareto tail.
double etc_value_bytes(double uniform) {
  constexpr double small[] = {0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606,
                              0.00023, 0.00837, 0.00837, 0.08989, 0.00092, 0.00326, 0.01980};
  double left = uniform, tail = 1;
  for (std::size_t size = 0; size < std::size(small); ++size) {
    if (left < small[size]) return static_cast<double>(size);
    left -= small[size];
    tail -= small[size];
  }
  return 15 + 214.476 / 0.348238 * (std::pow(std::max(1 - left / tail, 1e-9), -0.348238) - 1);
}

/// The requests of a workload, which follow from a fixed seed.
class Requests {
 public:
  explicit Requests(const Workload& workload) : workload_(workload), cumulative_(workload.keys) {
    double sum = 0;
    for (std::uint32_t rank = 0; rank < workload.keys; ++rank) {
      cumulative_[rank] = sum += std::pow(rank + 1, -workload.alpha);
    }
  }
  struct Request {
    std::string key;
    std::uint32_t value_bytes;
    bool is_set;
  };
  Request next() {
    std::uint64_t number = 0;
    const bool scans =
        workload_.keys == 0 || (workload_.scan_every != 0 && at_++ % (workload_.scan_every + workload_.scan_keys) >= workload_.scan_every);
    if (scans) {
      number = workload_.keys + scanned_++;
    } else {
      const double where = uniform_(random_) * cumulative_.back();
      number = static_cast<std::uint64_t>(std::ranges::upper_bound(cumulative_, where) - cumulative_.begin());
    }
    Request request = sized(scrambled(number));
    request.is_set = workload_.set_share > 0 && uniform_(random_) < workload_.set_share;
    return request;
  }

 private:
  [[nodiscard]] Request sized(std::uint64_t id) const {
    const double one = static_cast<double>(scrambled(id) >> 11) * 0x1p-53, other = static_cast<double>(scrambled(id + 1) >> 11) * 0x1p-53;
    double key_bytes = workload_.key_bytes, value_bytes = workload_.value_bytes;
    if (workload_.sizes == Workload::Sizes::etc) {
      key_bytes = 30.7984 + 8.20449 / 0.078688 * (std::pow(-std::log(std::max(one, 1e-12)), -0.078688) - 1);
      value_bytes = etc_value_bytes(other);
    } else if (workload_.sizes == Workload::Sizes::exponential) {
      value_bytes = -std::log(1 - other) * value_bytes;
    }
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(id));
    Request request{
        .key = digits, .value_bytes = static_cast<std::uint32_t>(std::min<double>(value_bytes, value_bytes_max / 2)), .is_set = false};
    request.key.resize(static_cast<std::size_t>(std::clamp<double>(key_bytes, 16, key_bytes_max)), 'k');
    return request;
  }

  const Workload& workload_;
  std::vector<double> cumulative_;  // of the popularity, by rank
  std::mt19937_64 random_{42};
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::uint64_t at_ = 0, scanned_ = 0;
};

const std::string& letters() {
  static const std::string text(value_bytes_max, 'v');
  return text;
}

using Batch = std::vector<Requests::Request>;
using Hits = std::vector<bool>;

/// One thread, one core. Unlinked items are freed at once, because no event of another core reads them.
class NeapSide {
 public:
  explicit NeapSide(std::size_t memory_bytes)
      : pages_before_(prepare(memory_bytes)), store_(options(memory_bytes)), pages_empty_(memory::page_counters().free_bytes) {}

  Hits serve(const Batch& batch, Seconds now) {
    Hits hits(batch.size());
    for (std::size_t at = 0; at < batch.size(); ++at) {
      if (!batch[at].is_set) hits[at] = store_.find(store_.key(batch[at].key), now).item != nullptr;
    }
    for (std::size_t at = 0; at < batch.size(); ++at) {
      if (hits[at]) continue;
      const Key key = store_.key(batch[at].key);
      const std::string_view value = std::string_view(letters()).substr(0, batch[at].value_bytes);
      while (store_.must_wait(Store::footprint(key.text.size(), value.size()), now)) {
      }
      if (store_.set(key, 0, expires_never, value, now).outcome != Outcome::stored) ++refused_;
    }
    return hits;
  }
  [[nodiscard]] std::uint64_t items() const { return store_.counters().items; }
  [[nodiscard]] std::uint64_t evictions() const { return store_.counters().evictions; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  /// The pages that the items take, and those of the spare blocks, which an empty store has, too.
  [[nodiscard]] std::uint64_t memory_bytes() const { return pages_empty_ - memory::page_counters().free_bytes; }
  [[nodiscard]] std::uint64_t spare_bytes() const { return pages_before_ - pages_empty_; }
  [[nodiscard]] std::uint64_t table_bytes() const { return store_.table().bucket_count() * sizeof(void*); }

 private:
  static std::uint64_t prepare(std::size_t memory_bytes) {
    host::set_memory_bytes(memory_bytes * 2 + (std::size_t{64} << 20));
    memory::initialise_pages(machine::usable_memory());
    return memory::page_counters().free_bytes;
  }
  static StoreOptions options(std::size_t memory_bytes) {
    StoreOptions options;
    options.memory_bytes = memory_bytes;
    options.seed = {1, 2};
    options.memory.allocate = [](std::size_t bytes) noexcept { return memory::allocate(bytes); };
    options.memory.release = [](void* pointer) noexcept { memory::deallocate(pointer); };
    options.memory.shrink = &memory::shrink;
    options.retire = &test::reclaim_at_once;
    return options;
  }

  std::uint64_t pages_before_;
  Store store_;
  std::uint64_t pages_empty_, refused_ = 0;
};

/// A connection to stock memcached.
class StockSide {
 public:
  explicit StockSide(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("no connection to stock memcached");
    const int on = 1;
    (void)::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  StockSide& operator=(StockSide&&) = delete;
  ~StockSide() { ::close(socket_); }

  Hits serve(const Batch& batch) {
    Hits hits(batch.size());
    std::string request;
    for (const auto& [key, bytes, is_set] : batch) {
      if (!is_set) request += "get " + key + "\r\n";
    }
    send(request);
    for (std::size_t at = 0; at < batch.size(); ++at) {
      if (batch[at].is_set) continue;
      hits[at] = read_line() != "END";
      if (!hits[at]) continue;
      skip(batch[at].value_bytes + 2);
      if (read_line() != "END") fail("stock memcached's answer to a get is not as expected");
    }
    request.clear();
    std::size_t sets = 0;
    for (std::size_t at = 0; at < batch.size(); ++at) {
      if (hits[at]) continue;
      ++sets;
      request += "set " + batch[at].key + " 0 0 " + std::to_string(batch[at].value_bytes) + "\r\n";
      request.append(letters(), 0, batch[at].value_bytes).append("\r\n");
    }
    send(request);
    while (sets-- != 0) {
      if (read_line() != "STORED") ++refused_;
    }
    return hits;
  }
  [[nodiscard]] std::uint64_t statistic(std::string_view topic, std::string_view name) {
    send("stats" + std::string(topic) + "\r\n");
    std::uint64_t value = 0;
    const std::string wanted = "STAT " + std::string(name) + " ";
    for (std::string line; (line = read_line()) != "END";) {
      if (line.starts_with(wanted)) std::from_chars(line.data() + wanted.size(), line.data() + line.size(), value);
    }
    return value;
  }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) fail("stock memcached closed the connection");
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  void fill() {
    buffer_.erase(0, used_);
    used_ = 0;
    const std::size_t before = buffer_.size();
    buffer_.resize(before + 65536);
    const ssize_t got = ::recv(socket_, buffer_.data() + before, 65536, 0);
    if (got <= 0) fail("stock memcached closed the connection");
    buffer_.resize(before + static_cast<std::size_t>(got));
  }
  std::string read_line() {
    for (;;) {
      const std::size_t end = buffer_.find("\r\n", used_);
      if (end != std::string::npos) {
        std::string line = buffer_.substr(used_, end - used_);
        used_ = end + 2;
        return line;
      }
      fill();
    }
  }
  void skip(std::size_t bytes) {
    while (buffer_.size() - used_ < bytes) fill();
    used_ += bytes;
  }

  int socket_;
  std::string buffer_;
  std::size_t used_ = 0;
  std::uint64_t refused_ = 0;
};

std::uint64_t count(const Hits& hits) { return static_cast<std::uint64_t>(std::ranges::count(hits, true)); }

int compare(const Workload& workload, std::size_t memory_bytes, std::uint64_t requests, std::uint16_t port) {
  Requests source(workload);
  NeapSide neap(memory_bytes);
  std::optional<StockSide> stock;
  if (port != 0) stock.emplace(port);
  std::uint64_t gets = 0, neap_hits = 0, stock_hits = 0;
  const auto began = std::chrono::steady_clock::now();
  for (std::uint64_t done = 0; done < requests; done += batch_requests) {
    Batch batch(batch_requests);
    for (auto& request : batch) request = source.next();
    const auto elapsed = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - began);
    const Hits ours = neap.serve(batch, Clock::first_second + static_cast<Seconds>(elapsed.count()));
    const Hits theirs = stock ? stock->serve(batch) : Hits();
    if (done < requests / 2) continue;
    gets += static_cast<std::uint64_t>(std::ranges::count_if(batch, [](const auto& request) { return !request.is_set; }));
    neap_hits += count(ours);
    stock_hits += count(theirs);
  }
  const auto report = [&](const char* name, std::uint64_t ours, std::uint64_t theirs) {
    std::printf("%s %llu %llu\n", name, static_cast<unsigned long long>(ours), static_cast<unsigned long long>(theirs));
  };
  const auto statistic = [&](std::string_view topic, std::string_view name) { return stock ? stock->statistic(topic, name) : 0; };
  report("gets", gets, gets);
  report("hits", neap_hits, stock_hits);
  report("items", neap.items(), statistic("", "curr_items"));
  report("evictions", neap.evictions(), statistic("", "evictions"));
  report("refused", neap.refused(), stock ? stock->refused() : 0);
  report("memory_bytes", neap.memory_bytes(), statistic(" slabs", "total_malloced"));
  report("spare_bytes", neap.spare_bytes(), 0);
  report("table_bytes", neap.table_bytes(), statistic("", "hash_bytes"));
  return 0;
}

}  // namespace
}  // namespace neap::memcached

int main(int count, char** words) {
  using namespace neap::memcached;
  if (count != 5) fail("usage: memcached_hit_ratio WORKLOAD MEMORY_BYTES REQUESTS PORT");
  for (const Workload& workload : workloads) {
    if (workload.name != words[1]) continue;
    return compare(workload, std::strtoull(words[2], nullptr, 10), std::strtoull(words[3], nullptr, 10),
                   static_cast<std::uint16_t>(std::strtoul(words[4], nullptr, 10)));
  }
  fail("no such workload");
}
