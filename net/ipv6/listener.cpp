// SPDX-License-Identifier: BSL-1.0
#include "net/ipv6/listener.hpp"

#include <algorithm>

namespace neap::net::ipv6 {

namespace {

constexpr std::uint8_t mode_is_exclude = 2, change_to_include = 3, change_to_exclude = 4;  // RFC 3810, 5.2.12
constexpr std::size_t record_bytes = 20, records_max = 60, message_1_bytes = 24, query_2_bytes_min = 28;

}  // namespace

Listener::Group* Listener::find(const Address& group) noexcept {
  const auto found = std::ranges::find_if(groups_, [&](const Group& one) { return one.present() && one.address == group; });
  return found == groups_.end() ? nullptr : &*found;
}

Listener::Group* Listener::find_or_make(const Address& group) noexcept {
  if (Group* const found = find(group); found != nullptr) return found;
  auto place = std::ranges::find_if(groups_, [](const Group& one) { return !one.present(); });
  if (place == groups_.end()) place = std::ranges::find_if(groups_, [](const Group& one) { return !one.used(); });
  if (place == groups_.end()) return nullptr;
  *place = {.address = group};
  return &*place;
}

void Listener::note_change(Group& group) noexcept {
  group.left = !group.used();
  group.answer_ms = never;
  group.repeats = robustness;
  group.change_ms = link_.now_ms();
  if (!is_reported(group.address)) {
    group.change_ms = never;
    if (!group.used()) group = {};
  }
  run_timers();
  user_.groups_changed();
}

bool Listener::use(const Address& group) noexcept {
  Group* const own = find_or_make(group);
  if (own == nullptr) return false;
  if (own->used()) {
    ++own->own_uses;
    return true;
  }
  own->own_uses = 1;
  note_change(*own);
  return true;
}

void Listener::end_use(const Address& group) noexcept {
  Group* const own = find(group);
  if (own == nullptr || own->own_uses == 0) return;
  --own->own_uses;
  if (!own->used()) note_change(*own);
}

Result<void> Listener::join(const Address& group, unsigned core) noexcept {
  const auto joined = std::ranges::count_if(groups_, [](const Group& one) { return one.cores.any(); });
  Group* own = find(group);
  if (own != nullptr && own->cores[core]) return failure(ErrorCode::invalid, "this core has joined the group already", core);
  if ((own == nullptr || own->cores.none()) && joined >= joined_groups_max) return failure(ErrorCode::full, "too many groups", core);
  own = find_or_make(group);
  if (own == nullptr) return failure(ErrorCode::full, "too many groups", core);
  const bool used = own->used();
  own->cores.set(core);
  if (!used) note_change(*own);
  return {};
}

Result<void> Listener::leave(const Address& group, unsigned core) noexcept {
  Group* const own = find(group);
  if (own == nullptr || !own->cores[core]) return failure(ErrorCode::invalid, "this core has not joined the group", core);
  own->cores.reset(core);
  if (!own->used()) note_change(*own);
  return {};
}

machine::CoreSet Listener::cores_of(const Address& group) const noexcept {
  const Group* const own = const_cast<Listener*>(this)->find(group);
  return own == nullptr ? machine::CoreSet{} : own->cores;
}

bool Listener::receives(const Address& group) const noexcept {
  const Group* const own = const_cast<Listener*>(this)->find(group);
  return group == all_nodes || (own != nullptr && own->used());
}

void Listener::put_addresses(std::vector<MacAddress>& addresses) const {
  addresses.push_back(mac_of_group(all_nodes));
  for (const Group& group : groups_) {
    if (group.used()) addresses.push_back(mac_of_group(group.address));
  }
}

void Listener::query(Octets message) noexcept {
  const bool version_1 = message.size() == message_1_bytes;
  if (!version_1 && message.size() < query_2_bytes_min) return counters_.malformed.add();
  counters_.queries.add();
  const std::uint64_t now = link_.now_ms();
  std::uint64_t longest_ms = read_16(message, 4);
  // RFC 3810, 5.1.3: from 32768 on, the code is a floating-point number.
  if (!version_1 && longest_ms >= 32768) longest_ms = ((longest_ms & 0xFFF) | 0x1000) << ((longest_ms >> 12 & 7) + 3);
  if (version_1) version_1_until_ms_ = now + version_1_ms;
  const Address wanted = Address::read(message.data() + 8);
  const std::uint64_t common_ms = now + link_.random_bits() % (longest_ms + 1);
  for (Group& group : groups_) {
    if (!group.used() || !is_reported(group.address) || (!wanted.is_unspecified() && group.address != wanted)) continue;
    const std::uint64_t due = version_1 ? now + link_.random_bits() % (longest_ms + 1) : common_ms;
    group.answer_ms = std::min(group.answer_ms, due);
  }
}

void Listener::other_reported(const Address& group) noexcept {
  if (link_.now_ms() >= version_1_until_ms_) return;
  if (Group* const own = find(group); own != nullptr) own->answer_ms = never;
}

void Listener::report_all() noexcept {
  const std::uint64_t now = link_.now_ms();
  for (Group& group : groups_) {
    if (!group.present() || !is_reported(group.address)) continue;
    group.repeats = robustness;
    group.change_ms = now;
  }
  run_timers();
}

/// Sends what is due: reports of changes, or answers to queries.
void Listener::report(bool changes) noexcept {
  const std::uint64_t now = link_.now_ms();
  const bool version_1 = now < version_1_until_ms_;
  std::array<std::byte, icmp::header_bytes + record_bytes * records_max> message{};
  std::size_t records = 0;
  const auto send = [&] {
    if (records == 0) return;
    message[0] = std::byte{icmp::listener_report_2};
    write_16(message.data() + 6, static_cast<unsigned>(records));
    counters_.reports_sent.add();
    user_.send_report(all_listeners_2, std::span(message).first(icmp::header_bytes + records * record_bytes));
    records = 0;
    message.fill(std::byte{0});
  };
  for (Group& group : groups_) {
    if (!group.present() || now < (changes ? group.change_ms : group.answer_ms)) continue;
    const bool listens = group.used();
    const Address address = group.address;
    if (!changes) {
      group.answer_ms = never;
    } else if (--group.repeats > 0) {
      group.change_ms = now + 1 + link_.random_bits() % change_interval_ms;
    } else {
      group.change_ms = never;
      if (!listens) group = {};
    }
    if (version_1) {
      std::array<std::byte, message_1_bytes> report{};
      report[0] = std::byte{listens ? icmp::listener_report_1 : icmp::listener_done_1};
      address.write(report.data() + 8);
      counters_.reports_sent.add();
      user_.send_report(listens ? address : all_routers, report);
      continue;
    }
    std::byte* const record = message.data() + icmp::header_bytes + records * record_bytes;
    record[0] = std::byte{!changes ? mode_is_exclude : listens ? change_to_exclude : change_to_include};
    address.write(record + 4);
    if (++records == records_max) send();
  }
  send();
}

void Listener::run_timers() noexcept {
  if (link_.now_ms() < due_ms()) return;
  report(true);
  report(false);
}

std::uint64_t Listener::due_ms() const noexcept {
  std::uint64_t due = never;
  for (const Group& group : groups_) {
    if (group.present()) due = std::min({due, group.change_ms, group.answer_ms});
  }
  return due;
}

}  // namespace neap::net::ipv6
