// SPDX-License-Identifier: BSL-1.0
// The values that a ScriptedMachine records after each step.
#include "lwip/priv/tcp_priv.h"
#include "net/testing/scripted_handler.hpp"

namespace neap::net::testing {

namespace {

std::int64_t relative(std::uint32_t number, std::uint32_t first) { return static_cast<std::int32_t>(number - first); }

std::int64_t segments_in(const tcp_seg* list) {
  std::int64_t count = 0;
  for (; list != nullptr; list = list->next) ++count;
  return count;
}

std::int64_t bytes_in(const tcp_seg* list) {
  std::int64_t bytes = 0;
  for (; list != nullptr; list = list->next) bytes += list->len;
  return bytes;
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
      const tcp_pcb* const pcb = state.pcb();
      if (pcb == nullptr) continue;
      peer.edge = pcb->rcv_nxt + pcb->rcv_wnd - peer.first;
      peer.taken = pcb->rcv_nxt - peer.first;
      add("state", pcb->state);
      add("link", link_ ? 1 : 0);
      add("flags", pcb->flags);
      add("polltmr", pcb->polltmr);
      add("tmr", static_cast<std::int64_t>(tcp_ticks - pcb->tmr));
      add("rcv_nxt", relative(pcb->rcv_nxt, peer.first));
      add("rcv_wnd", pcb->rcv_wnd);
      add("rcv_ann_wnd", pcb->rcv_ann_wnd);
      add("rcv_ann_right_edge", relative(pcb->rcv_ann_right_edge, peer.first));
      add("rtime", pcb->rtime);
      add("mss", pcb->mss);
      add("rttest", pcb->rttest == 0 ? -1 : static_cast<std::int64_t>(tcp_ticks - pcb->rttest));
      add("rtseq", pcb->rttest == 0 ? 0 : relative(pcb->rtseq, peer.machine_first));
      add("sa", pcb->sa);
      add("sv", pcb->sv);
      add("rto", pcb->rto);
      add("nrtx", pcb->nrtx);
      add("dupacks", pcb->dupacks);
      add("lastack", relative(pcb->lastack, peer.machine_first));
      add("cwnd", pcb->cwnd);
      add("ssthresh", pcb->ssthresh);
      add("rto_end", (pcb->flags & TF_RTO) == 0 ? 0 : relative(pcb->rto_end, peer.machine_first));
      add("snd_nxt", relative(pcb->snd_nxt, peer.machine_first));
      add("snd_lbb", relative(pcb->snd_lbb, peer.machine_first));
      add("snd_wl1", relative(pcb->snd_wl1, peer.first));
      add("snd_wl2", relative(pcb->snd_wl2, peer.machine_first));
      add("snd_wnd", pcb->snd_wnd);
      add("snd_wnd_max", pcb->snd_wnd_max);
      add("snd_buf", pcb->snd_buf);
      add("snd_queuelen", pcb->snd_queuelen);
      add("unsent_oversize", pcb->unsent_oversize);
      add("bytes_acked", pcb->bytes_acked);
      add("unsent_segments", segments_in(pcb->unsent));
      add("unsent_bytes", bytes_in(pcb->unsent));
      add("unacked_segments", segments_in(pcb->unacked));
      add("unacked_bytes", bytes_in(pcb->unacked));
      add("ooseq_segments", segments_in(pcb->ooseq));
      add("ooseq_bytes", bytes_in(pcb->ooseq));
      add("persist_cnt", pcb->persist_cnt);
      add("persist_backoff", pcb->persist_backoff);
      add("persist_probe", pcb->persist_probe);
      add("keep_cnt_sent", pcb->keep_cnt_sent);
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
