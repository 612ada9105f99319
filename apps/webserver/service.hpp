// SPDX-License-Identifier: BSL-1.0
// The web server of all cores: one engine, one HTTP core and one binding for each, and the ports that the scripts listen on.
//
// Each core evaluates the same script and serves its own connections. So `listen` is called once on each core, and the port is opened by
// the first call. During the start, ports are only noted: a port that opens before all cores have run the script would lose the
// connections of the others.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/webserver/binding/http_binding.hpp"
#include "apps/webserver/engine/archive.hpp"
#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/http_core.hpp"
#include "apps/webserver/options.hpp"
#include "kernel/async_mutex.hpp"
#include "kernel/events.hpp"
#include "kernel/task.hpp"
#include "net/network.hpp"

namespace neap::webserver {

class Service final : public PortOpener {
 public:
  /// All arguments MUST outlive the service. `scripts` is shared by all cores.
  Service(net::Network& network, const Options& options, Archive scripts);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() override;

  /// Makes the engines and runs the script: first on core 0, then on the others at the same time. Then opens the ports. The error is a text
  /// for the operator.
  [[nodiscard]] task<std::expected<void, std::string>> start();
  /// Emits the counters of one core, or of all. MAY be called on any core.
  void report_counters(std::optional<unsigned> core, const Emit& emit) const;

  // PortOpener
  void open(HttpBinding& binding, std::uint16_t port) override;

 private:
  struct Core;

  /// On its core: makes the engine and runs the script. Empty: done; else why not.
  [[nodiscard]] std::string start_core(unsigned index);
  [[nodiscard]] task<void> open_port(unsigned core, std::uint16_t port);
  /// On core 0: opens a port on all cores, if that was not done before. A code of Node's, or null.
  [[nodiscard]] task<const char*> open_everywhere(std::uint16_t port);
  [[nodiscard]] std::unique_ptr<net::ConnectionHandler> accept(std::uint16_t port, net::Connection& connection);

  net::Network& network_;
  const Options options_;
  const Archive scripts_;
  std::vector<std::unique_ptr<Core>> cores_;
  AsyncMutex opening_;
  std::map<std::uint16_t, const char*> opened_;  ///< of core 0: the ports that were opened, and the error or null
};

}  // namespace neap::webserver
