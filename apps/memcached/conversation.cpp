// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/conversation.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>

namespace neap::memcached {

std::size_t Conversation::consume(std::string_view input, Reply& reply) noexcept {
  if (closing_) return input.size();
  Context context{.service = service_, .statistics = core_.statistics, .reply = reply, .transfer = transfer_, .now = service_.clock.now()};
  service_.store.tick(context.now);
  std::size_t used = 0;
  if (protocol_ == Protocol::unknown) {
    if (input.empty()) return 0;
    protocol_ = input.front() == BinaryProtocol::request_magic ? Protocol::binary : Protocol::text;
  }
  while (!reply.full() && !closing_) {
    const std::string_view rest = input.substr(used);
    if (transfer_.bytes_left > 0) {
      assert(carry_ == nullptr);  // a head is carried up to its end and no further
      if (rest.empty()) break;
      used += receive_value(rest, context);
    } else if (carry_ != nullptr) {
      const std::size_t carried = carry_->used;
      const std::size_t taken = step_carried(rest, context);
      used += taken;
      if (taken == 0 && carry_ != nullptr && carry_->used == carried) break;  // neither more input nor anything done
    } else {
      if (rest.empty()) break;
      const std::size_t done = step(rest, context);
      used += done;
      if (done == 0 && !reply.full()) {
        carry(rest);
        used = input.size();
        break;
      }
    }
    closing_ = closing_ || context.closing;
  }
  if (reply.failed()) closing_ = true;
  return closing_ ? input.size() : used;
}

/// Tries what is carried, and if that is not enough, adds from `more`. Returns how much of `more` was taken.
std::size_t Conversation::step_carried(std::string_view more, Context& context) noexcept {
  const std::size_t done = step(carry_->text(), context);
  if (done > 0) {
    carry_->used -= done;
    std::memmove(carry_->bytes, carry_->bytes + done, carry_->used);
    if (carry_->used == 0 || context.closing) carry_.reset();
    return 0;
  }
  if (context.reply.full() || more.empty()) return 0;
  const std::size_t wanted = protocol_ == Protocol::text ? text_.wants(carry_->text(), more) : binary_.wants(carry_->text(), more);
  assert(carry_->used + wanted <= carry_bytes_max);
  std::memcpy(carry_->bytes + carry_->used, more.data(), wanted);
  carry_->used += wanted;
  return wanted;
}

std::size_t Conversation::receive_value(std::string_view input, Context& context) noexcept {
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(input.size(), transfer_.bytes_left));
  transfer_.bytes_left -= bytes;
  if (transfer_.to == nullptr) return bytes;
  std::memcpy(transfer_.to, input.data(), bytes);
  transfer_.to += bytes;
  if (transfer_.bytes_left > 0) return bytes;
  transfer_.to = nullptr;
  if (protocol_ == Protocol::text) {
    text_.transfer_done(context);
  } else {
    binary_.transfer_done(context);
  }
  transfer_.item.reset();
  return bytes;
}

void Conversation::carry(std::string_view rest) noexcept {
  assert(rest.size() < carry_bytes_max);  // a parser that has that much needs no more
  carry_.reset(new (std::nothrow) Carry);
  if (carry_ == nullptr) {
    closing_ = true;
    return;
  }
  std::memcpy(carry_->bytes, rest.data(), rest.size());
  carry_->used = rest.size();
}

}  // namespace neap::memcached
