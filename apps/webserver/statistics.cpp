// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/statistics.hpp"

namespace neap::webserver {

namespace {
using Row = NamedCount<Statistics, Counter>;
constexpr Row rows[] = {
    {"connections.accepted", &Statistics::connections_accepted},
    {"connections.closed", &Statistics::connections_closed},
    {"connections.refused", &Statistics::connections_refused},
    {"connections.refused_peer", &Statistics::peer_connections_refused},
    {"connections.idle_closed", &Statistics::connections_idle_closed},
    {"connections.aborted", &Statistics::connections_aborted},
    {"connections.lost", &Statistics::connections_lost},
    {"requests.total", &Statistics::requests},
    {"requests.completed", &Statistics::requests_completed},
    {"requests.aborted", &Statistics::requests_aborted},
    {"requests.refused", &Statistics::requests_refused},
    {"requests.refused_400", &Statistics::refused_400},
    {"requests.refused_408", &Statistics::refused_408},
    {"requests.refused_413", &Statistics::refused_413},
    {"requests.refused_414", &Statistics::refused_414},
    {"requests.refused_417", &Statistics::refused_417},
    {"requests.refused_431", &Statistics::refused_431},
    {"requests.refused_501", &Statistics::refused_501},
    {"requests.refused_503", &Statistics::refused_503},
    {"requests.refused_505", &Statistics::refused_505},
    {"requests.yields", &Statistics::yields},
    {"requests.continues", &Statistics::continues_sent},
    {"requests.bodies_discarded", &Statistics::bodies_discarded},
    {"requests.bodies_not_discarded", &Statistics::bodies_too_long_to_discard},
    {"timeouts.head", &Statistics::head_timeouts},
    {"timeouts.request", &Statistics::request_timeouts},
    {"timeouts.write", &Statistics::write_timeouts},
    {"responses.too_long", &Statistics::responses_too_long},
    {"responses.too_short", &Statistics::responses_too_short},
    {"responses.writes_refused", &Statistics::writes_refused},
    {"bytes.received", &Statistics::bytes_received},
    {"bytes.sent", &Statistics::bytes_sent},
    {"output.send_waits", &Statistics::send_waits},
    {"output.limit_waits", &Statistics::output_waits},
    {"output.limit_resets", &Statistics::output_refused},
    {"memory.refused", &Statistics::no_memory},
    {"exchanges.alive", &Statistics::exchanges},
};
}  // namespace

void report_statistics(const Statistics& statistics, const Emit& emit) {
  for (const Row& row : rows) emit(row.name, (statistics.*row.count).value());
  static constexpr std::string_view names[] = {"", "responses.1xx", "responses.2xx", "responses.3xx", "responses.4xx", "responses.5xx"};
  for (std::size_t digit = 1; digit < std::size(names); ++digit) emit(names[digit], statistics.responses[digit].value());
  std::uint64_t unusual = 0;
  for (std::size_t digit = std::size(names); digit < statistics.responses.size(); ++digit) unusual += statistics.responses[digit].value();
  emit("responses.other", unusual);
}

}  // namespace neap::webserver
