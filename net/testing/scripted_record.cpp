// SPDX-License-Identifier: BSL-1.0
// The values that a ScriptedMachine records after each step.
#include "net/testing/scripted_handler.hpp"

namespace neap::net::testing {

namespace {

std::int64_t relative(std::uint32_t number, std::uint32_t first) { return static_cast<std::int32_t>(number - first); }

std::int64_t segments_in(const tcp::SentSegment* list) {
  std::int64_t count = 0;
  for (; list != nullptr; list = list->next) ++count;
  return count;
}

}  // namespace

void ScriptedMachine::record_fields() {
  machine_.on(0, [this] {
    std::vector<Field>& fields = now().fields;
    for (unsigned number = 0; number < peers_max; ++number) {
      Peer& peer = peers_[number];
      if (peer.handler == nullptr) continue;
      const ConnectionState& state = peer.handler->state();
      const auto add = [&](const char* name, std::int64_t value) { fields.push_back({.name = name, .peer = number, .value = value}); };
      add("unacknowledged_bytes", static_cast<std::int64_t>(state.unacknowledged_bytes()));
      add("held_bytes", static_cast<std::int64_t>(state.held_bytes()));
      add("charged_bytes", static_cast<std::int64_t>(state.charged_bytes()));
      if (state.gone()) continue;
      const tcp::SendState& sender = state.sender();
      const tcp::ReceiveWindow& receiver = state.receiver();
      peer.edge = receiver.edge() - peer.first;
      peer.taken = receiver.next() - peer.first;
      add("state", static_cast<std::int64_t>(state.state()));
      add("link", link_ ? 1 : 0);
      add("silence_ms", state.silence().count());
      add("next", relative(receiver.next(), peer.first));
      add("edge", relative(receiver.edge(), peer.first));
      add("limit", receiver.limit_bytes());
      add("mss", sender.mss);
      add("una", relative(sender.una, peer.machine_first));
      add("nxt", relative(sender.nxt, peer.machine_first));
      add("wl1", relative(sender.wl1, peer.first));
      add("wl2", relative(sender.wl2, peer.machine_first));
      add("window", sender.window);
      add("window_max", sender.window_max);
      add("cwnd", sender.cwnd);
      add("ssthresh", sender.ssthresh);
      add("round_trip", sender.round_trip.smoothed_us());
      add("rto", sender.round_trip.rto_us);
      add("backoff", sender.backoff);
      add("segments", segments_in(sender.head));
      add("in_flight", sender.in_flight());
    }
    const auto add = [&](const char* name, std::uint64_t value) {
      fields.push_back({.name = name, .peer = peers_max, .value = static_cast<std::int64_t>(value)});
    };
    const Counters counters = net::counters(0);
    add("frames_received", counters.frames_received);
    add("frames_sent", counters.frames_sent);
    add("bytes_sent", counters.bytes_sent);
    add("segments_received", counters.segments_received);
    add("segments_sent", counters.segments_sent);
    add("retransmissions", counters.retransmissions);
    add("transmit_full", counters.transmit_full);
    add("transmit_failed", counters.transmit_failed);
    add("transmit_copied", counters.transmit_copied);
    add("receive_copied", counters.receive_copied);
    add("segments_refused", counters.segments_refused);
    add("challenge_acks", counters.challenge_acks);
    add("dropped_checksum", counters.dropped_checksum);
    add("dropped_protocol", counters.dropped_protocol);
    add("dropped_malformed", counters.dropped_malformed);
    add("dropped_memory", counters.dropped_memory);
    add("payload_refused", counters.payload_refused);
    add("discarded_bytes", counters.discarded_bytes);
    add("out_of_order_dropped", counters.out_of_order_dropped);
    add("connections_open", counters.connections_open);
    add("connections_reset", counters.connections_reset);
    add("connections_evicted", counters.connections_evicted);
    add("handler_out_of_memory", counters.handler_out_of_memory);
    add("held_bytes", counters.held_bytes);
    const Waits waits = net::waits();
    add("tcp_ms", waits.tcp_ms);
    add("connections_ms", waits.connections_ms);
  });
}

}  // namespace neap::net::testing
