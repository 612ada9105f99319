// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/conversation.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "kernel/panic.hpp"

namespace neap::memcached {

std::size_t Conversation::consume(std::string_view input, Reply& reply) noexcept {
  if (closing_) return input.size();
  Context context{.service = service_,
                  .statistics = core_.statistics,
                  .reply = reply,
                  .transfer = transfer_,
                  .now = core_.now(),
                  .copied_bytes = core_.copied_bytes,
                  .connection_id = connection_id_,
                  .long_answer = answers_ == Answers::all ? &answer_ : nullptr};
  service_.store.tick(context.now);
  std::size_t used = 0;
  const std::uint64_t requests_before = core_.statistics.value(Count::requests);
  waits_ = sleeps_ = false;
  if (protocol_ == Protocol::unknown) {
    if (input.empty()) return 0;
    protocol_ = choose_protocol(input.front());
  }
  if (answer_ != nullptr) {
    if (answer_->is_endless()) used = input.size();
    if (!go_on_answering(reply, context.now)) return used;
  }
  while (!reply.full() && !closing_) {
    require(used <= input.size(), "memcached: a parser consumed more than its input", used);
    const std::string_view rest = input.substr(used);
    if (service_.store.may_be_short_of_memory()) [[unlikely]] {
      const std::size_t bytes = item_bytes_needed(rest);
      if (bytes != 0 && service_.store.must_wait(bytes, context.now)) {
        waits_ = true;
        break;
      }
    }
    if (context.copied_bytes >= copied_bytes_max) [[unlikely]] {
      context.copied_bytes = 0;
      waits_ = true;
      break;
    }
    if (core_.statistics.value(Count::requests) - requests_before >= service_.settings.requests_per_event && !rest.empty()) [[unlikely]] {
      context.statistics.add(Count::conn_yields);
      waits_ = true;
      break;
    }
    if (transfer_.bytes_left > 0) {
      if (carry_ != nullptr) {  // a `Carry` never includes bytes of the value
        overrun(context);
        break;
      }
      if (rest.empty()) break;
      used += receive_value(rest, context);
    } else if (carry_ != nullptr) {
      const std::size_t carried = carry_->text().size();
      const std::size_t taken = step_carried(rest, context);
      used += taken;
      if (taken == 0 && carry_ != nullptr && carry_->text().size() == carried && !context.closing) break;  // more input is needed
    } else {
      if (rest.empty()) break;
      const std::size_t done = step(rest, context);
      used += done;
      if (used == input.size() && context.copied_bytes < copied_bytes_max) [[likely]]
        break;
      if (done == 0 && !reply.full()) {
        carry(rest, context);
        used = input.size();
      }
    }
    closing_ = closing_ || context.closing;
    if (answer_ != nullptr) break;
  }
  if (answer_ != nullptr) {  // its first part follows in an event of its own
    answer_->belong_to(sleeper_);
    waits_ = true;
  }
  core_.copied_bytes = context.copied_bytes;
  quit_ = context.quit;
  closing_ = closing_ || context.closing || reply.failed();
  return closing_ ? input.size() : used;
}

Conversation::Protocol Conversation::choose_protocol(char first) const noexcept {
  switch (service_.settings.binding) {
    case Binding::text:
      return Protocol::text;
    case Binding::binary:
      return Protocol::binary;
    case Binding::automatic:
      break;
  }
  return first == BinaryProtocol::request_magic ? Protocol::binary : Protocol::text;
}

/// Writes the next part of the long answer. Returns true if the answer is complete.
bool Conversation::go_on_answering(Reply& reply, Seconds now) noexcept {
  if (reply.full()) return false;
  try {
    switch (answer_->write(reply, now)) {
      case LongAnswer::Step::more:
        waits_ = true;
        return false;
      case LongAnswer::Step::sleeps:
        sleeps_ = true;
        return false;
      case LongAnswer::Step::done:
        break;
    }
  } catch (...) {  // without memory the connection is closed
    closing_ = true;
  }
  answer_.reset();
  return true;
}

std::string_view Conversation::state() const noexcept {
  if (closing_) return "conn_closing";
  if (answer_ != nullptr) return "conn_watch";
  if (transfer_.bytes_left > 0) return transfer_.fills ? "conn_nread" : "conn_swallow";
  return carry_ != nullptr ? "conn_waiting" : "conn_read";
}

/// Parses the bytes in `carry_`. If they are not a whole command, appends bytes of `more` to `carry_`. Returns the number of added bytes.
std::size_t Conversation::step_carried(std::string_view more, Context& context) noexcept {
  const std::size_t done = step(carry_->text(), context);
  if (done > 0) {
    if (!carry_->drop_front(done)) overrun(context);
    if (carry_->text().empty() || context.closing) carry_.reset();
    return 0;
  }
  if (context.reply.full() || more.empty()) return 0;
  const std::size_t wanted = protocol_ == Protocol::text ? text_.wants(carry_->text(), more) : binary_.wants(carry_->text(), more);
  if (wanted == 0 || !carry_->add(more.substr(0, wanted))) {  // no room is left in `carry_`, but the command is incomplete
    overrun(context);
    return 0;
  }
  return wanted;
}

/// Returns the size of the item that the next step allocates, 0 if none. The size is an estimate, because another core may change the
/// stored item from which the command makes a new one. A command that then needs more memory may be refused.
std::size_t Conversation::item_bytes_needed(std::string_view rest) const noexcept {
  if (transfer_.bytes_left > 0) {
    if (!transfer_.item || !joins(transfer_.mode) || rest.size() < transfer_.bytes_left) return 0;
    const Item& piece = *transfer_.item.get();
    const std::size_t value_bytes = piece.value_bytes + service_.store.stored_value_bytes({piece.key(), piece.hash});
    return Store::footprint(piece.key_bytes, value_bytes, piece.more_bytes());
  }
  const std::string_view head = carry_ != nullptr ? carry_->text() : rest;
  return protocol_ == Protocol::text ? text_.item_bytes_needed(head, service_.store) : binary_.item_bytes_needed(head, service_.store);
}

std::size_t Conversation::receive_value(std::string_view input, Context& context) noexcept {
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(input.size(), transfer_.bytes_left));
  if (!transfer_.take(input.substr(0, bytes))) {
    overrun(context);
    return bytes;
  }
  if (!transfer_.fills || transfer_.bytes_left > 0) return bytes;
  transfer_.fills = false;
  if (protocol_ == Protocol::text) {
    text_.transfer_done(context);
  } else {
    binary_.transfer_done(context);
  }
  transfer_.item.reset();
  return bytes;
}

void Conversation::carry(std::string_view rest, Context& context) noexcept {
  carry_.reset(new (std::nothrow) Carry);
  if (carry_ == nullptr) {
    context.closing = true;
    return;
  }
  if (!carry_->add(rest)) overrun(context);
}

void Conversation::overrun(Context& context) noexcept {
  context.statistics.add(Count::protocol_overrun);
  context.closing = true;
}

bool Carry::add(std::string_view more) noexcept {
  require(used_ <= bytes_max, "memcached: a carried command exceeds its buffer", used_);
  if (more.size() > bytes_max - used_) return false;
  std::memcpy(bytes_ + used_, more.data(), more.size());
  used_ += more.size();
  return true;
}

bool Carry::drop_front(std::size_t bytes) noexcept {
  if (bytes > used_) return false;
  used_ -= bytes;
  std::memmove(bytes_, bytes_ + bytes, used_);
  return true;
}

}  // namespace neap::memcached
