// SPDX-License-Identifier: BSL-1.0
#include "apps/tpcc/server_database.hpp"

#include <chrono>
#include <utility>

#include "apps/tpcc/answer_text.hpp"
#include "apps/tpcc/consistency.hpp"
#include "apps/tpcc/engine/transaction.hpp"
#include "apps/tpcc/engine/worker.hpp"
#include "apps/tpcc/inputs.hpp"
#include "apps/tpcc/loader.hpp"
#include "apps/tpcc/procedures.hpp"
#include "kernel/log.hpp"
#include "kernel/machine.hpp"
#include "kernel/memory/page_allocator.hpp"
#include "kernel/when_all.hpp"

namespace neap::tpcc {
namespace {

using namespace std::chrono_literals;

constexpr unsigned load_steps_an_event = 8;
/// Then the transaction is postponed. On a virtual machine, the core that is in the way may have no CPU for many milliseconds, and this
/// core's other events would wait as long.
constexpr unsigned attempts_an_event = 8;

class DatabaseTerminal final : public Terminal {
 public:
  DatabaseTerminal(Database& database, std::unique_ptr<transactions::Worker> worker, const Options& settings, unsigned core,
                   unsigned cores) noexcept
      : database_(database),
        worker_(std::move(worker)),
        transaction_(*worker_),
        generator_(settings.seed, core + 1, home_warehouses(database.scale, core, cores), database.scale),
        attempts_max_(settings.attempts_max),
        reserve_bytes_(settings.reserve_bytes) {}

  Answer run(std::span<char, answer_bytes_max> text) noexcept override {
    if (inputs_ == nullptr) {
      begin_tsc_ = machine::timestamp();
      inputs_ = &generator_.next(date_us());
      attempts_ = 0;
    }
    const TransactionType type = type_of(*inputs_);
    Answer answer{.type = type, .ending = Ending::no_memory, .attempts = attempts_, .bytes = 0};
    const bool inserts = type == TransactionType::new_order || type == TransactionType::payment;
    if (!inserts || memory::free_page_bytes() >= reserve_bytes_) {
      Outcome outcome = Outcome::conflict;
      for (unsigned attempt = 0; outcome == Outcome::conflict && attempt < attempts_an_event; ++attempt) {
        if (attempts_ == attempts_max_) break;
        ++attempts_;
        outcome = tpcc::run(transaction_, database_, *inputs_, result_);
      }
      if (outcome == Outcome::conflict && attempts_ < attempts_max_)
        return {.type = type, .ending = Ending::postponed, .attempts = attempts_};
      answer.ending = ending_of(outcome);
      answer.attempts = attempts_;
      if (outcome == Outcome::committed || outcome == Outcome::absent) answer.bytes = write_answer(*inputs_, result_, text);
    }
    inputs_ = nullptr;
    log::count_transaction(static_cast<unsigned>(type), {.committed = answer.ending == Ending::committed,
                                                         .rolled_back = answer.ending == Ending::rolled_back,
                                                         .failed = answer.ending >= Ending::conflict,
                                                         .retries = answer.attempts - (answer.attempts == 0 ? 0 : 1),
                                                         .begin_tsc = begin_tsc_});
    return answer;
  }

 private:
  [[nodiscard]] static Ending ending_of(Outcome outcome) noexcept {
    if (outcome == Outcome::committed) return Ending::committed;
    if (outcome == Outcome::absent) return Ending::rolled_back;
    // too_large: a district has no further order number, or a limit of the engine is reached.
    return outcome == Outcome::conflict ? Ending::conflict : Ending::no_memory;
  }
  [[nodiscard]] static std::uint64_t date_us() noexcept { return (machine::wall_clock_at_boot_ns() + machine::now_ns()) / 1000 + 1; }

  Database& database_;
  std::unique_ptr<transactions::Worker> worker_;
  Transaction transaction_;
  Generator generator_;
  Result result_;
  const Inputs* inputs_ = nullptr;  // of the transaction in progress: the one that was postponed
  std::uint64_t begin_tsc_ = 0;
  unsigned attempts_ = 0;
  unsigned attempts_max_;
  std::uint64_t reserve_bytes_;
};

Scale scale_of(const Service& service, Scale scale) {
  scale.warehouses = service.settings.warehouses;
  return scale;
}

}  // namespace

std::unique_ptr<Terminal> make_terminal(Database& database, const transactions::Epochs& epochs, const Options& settings, unsigned core,
                                        unsigned cores) {
  auto worker = transactions::Worker::make(epochs);
  if (worker == nullptr) return nullptr;
  return std::unique_ptr<Terminal>(new (std::nothrow) DatabaseTerminal(database, std::move(worker), settings, core, cores));
}

ServerDatabase::ServerDatabase(Service& service, const Scale& scale) : service_(service), database_(scale_of(service, scale)) {}

task<std::expected<void, std::string>> ServerDatabase::start() {
  std::vector<task<bool>> loads;
  for (unsigned core = 0; core < service_.core_count; ++core) {
    loads.push_back(on_core(core, [this] { return load_here(); }));
  }
  const std::vector<bool> loaded = co_await when_all(std::move(loads));
  for (unsigned core = 0; core < loaded.size(); ++core) {
    if (!loaded[core]) co_return std::unexpected("not enough memory for the tables; give more memory, or fewer warehouses=");
  }
  epochs_.start();
  service_.check_consistency = [this](Checked checked) { return begin_check(std::move(checked)); };
  co_return std::expected<void, std::string>();
}

task<bool> ServerDatabase::load_here() {
  const unsigned core = this_core();
  Loader loader(database_, service_.settings.seed, core, service_.core_count);
  for (;;) {
    for (unsigned step = 0; step < load_steps_an_event; ++step) {
      const Loader::Progress progress = loader.step();
      if (progress == Loader::Progress::more) continue;
      // Without the reserve, the first order would be refused.
      if (progress == Loader::Progress::no_memory || memory::free_page_bytes() < service_.settings.reserve_bytes) co_return false;
      auto terminal = make_terminal(database_, epochs_, service_.settings, core, service_.core_count);
      const bool made = terminal != nullptr;
      service_.core(core).terminal = std::move(terminal);
      co_return made;
    }
    if (memory::free_page_bytes() < service_.settings.reserve_bytes) co_return false;
    co_await sleep_for(0ns);
  }
}

bool ServerDatabase::begin_check(Checked checked) {
  if (checking_.exchange(true)) return false;
  try {
    neap::start(check(this_core(), std::move(checked)));
  } catch (...) {
    checking_ = false;
    throw;
  }
  return true;
}

/// A core that has paused begins no transaction, and a transaction never waits. So none runs when all cores have paused.
task<void> ServerDatabase::check(unsigned asking_core, Checked checked) {
  std::string violation;
  try {
    for (unsigned core = 0; core < service_.core_count; ++core) {
      co_await on_core(core, [this, core] { service_.core(core).paused.store(true, std::memory_order_relaxed); });
    }
    violation = find_inconsistency(database_);
  } catch (const std::bad_alloc&) {
    violation = "not checked: out of memory";
  }
  for (unsigned core = 0; core < service_.core_count; ++core) service_.core(core).paused.store(false, std::memory_order_relaxed);
  checking_ = false;
  require(this_core() == asking_core, "tpcc: a check ends on the core that asked for it", asking_core);
  checked(violation);
}

}  // namespace neap::tpcc
