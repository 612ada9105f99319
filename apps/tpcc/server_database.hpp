// SPDX-License-Identifier: BSL-1.0
// The database of the server: loaded by all cores at the start, used by one terminal on each core, and checked on request.
//
// Memory may run out, because orders are only added. The tables get no memory beyond the reserve (`reserve=`), which is the network's and
// the card's. With less free memory, a transaction that inserts rows is refused before it begins. The other ones go on. Free memory is
// counted in whole pages of all nodes. Free objects of the heap are not counted, so a little more than the reserve stays free.
#pragma once

#include <expected>
#include <memory>
#include <string>
#include <vector>

#include "apps/tpcc/engine/epochs.hpp"
#include "apps/tpcc/schema.hpp"
#include "apps/tpcc/service.hpp"
#include "kernel/task.hpp"

namespace neap::tpcc {

class ServerDatabase {
 public:
  /// `scale`: its warehouses are those of `service.settings`. Throws `bad_alloc`.
  ServerDatabase(Service& service, const Scale& scale);
  ServerDatabase& operator=(ServerDatabase&&) = delete;

  /// Loads each core's share there, then gives each core of `service` its terminal, and `service` its check. MUST be called on core 0.
  /// The error is a sentence.
  [[nodiscard]] task<std::expected<void, std::string>> start();

 private:
  [[nodiscard]] task<bool> load_here();
  [[nodiscard]] bool begin_check(Checked checked);
  [[nodiscard]] task<void> check(unsigned asking_core, Checked checked);

  Service& service_;
  Database database_;
  transactions::Epochs epochs_;
  std::atomic<bool> checking_ = false;
};

/// Makes the terminal of `core`, which MUST be the calling core; null without memory.
[[nodiscard]] std::unique_ptr<Terminal> make_terminal(Database& database, const transactions::Epochs& epochs, const Options& settings,
                                                      unsigned core, unsigned cores);

}  // namespace neap::tpcc
