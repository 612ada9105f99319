// SPDX-License-Identifier: BSL-1.0
// The output of a session. A short response is written into the frame that is sent, if nothing else of the connection is in flight and no
// further request waits. Pipelined and small pieces are gathered in the core's scratch memory until the event ends. Anything longer is
// written into a block of its own, which is sent by reference.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "apps/webserver/session.hpp"
#include "kernel/panic.hpp"

namespace neap::webserver {

namespace {
/// Longer buffers are divided, so that the connection can accept them in parts.
constexpr std::size_t part_bytes_max = 128 * 1024;
constexpr std::size_t copy_bytes_max = 64 * 1024;

void free_block(void* block) noexcept { std::free(block); }

/// A piece of a buffer that is sent in several parts.
struct Divided {
  net::Buffer whole;
  std::size_t parts = 0;
  static void release(void* divided) noexcept {
    auto* const self = static_cast<Divided*>(divided);
    if (--self->parts == 0) delete self;
  }
};

/// Appends `buffer` to `to` in pieces of up to `part_bytes_max` bytes. Returns false without memory; `to` is then longer by a part.
bool append_divided(net::Buffer& to, net::Buffer&& buffer) noexcept {
  while (!buffer.empty()) {
    const std::span<const std::byte> front = buffer.front();
    net::Buffer piece;
    buffer.move_pieces(static_cast<std::uint32_t>(front.size()), piece);
    if (front.size() <= part_bytes_max) {
      to.append(std::move(piece));
      continue;
    }
    auto* const divided = new (std::nothrow) Divided;
    if (divided == nullptr) return false;
    divided->whole = std::move(piece);
    divided->parts = (front.size() + part_bytes_max - 1) / part_bytes_max;
    const std::size_t before = to.bytes();
    for (std::size_t at = 0; at < front.size(); at += part_bytes_max) {
      // Without memory for its header, a part is released at once, and the other parts keep `divided` valid until the last one.
      to.append(net::Buffer::reference(front.subspan(at, std::min(part_bytes_max, front.size() - at)), &Divided::release, divided));
    }
    if (to.bytes() - before != front.size()) return false;
  }
  return true;
}

/// A part of `send_queue_bytes_max` bytes that is never sent (`request_room`).
constinit std::byte never_sent{};
}  // namespace

std::size_t Session::in_flight() noexcept {
  const std::size_t gathered = core_.scratch_owner_ == this ? core_.scratch_used_ : 0;
  return connection().unacknowledged_bytes() + unsent_.bytes() + gathered;
}

// --- Room --------------------------------------------------------------------------------------------------------------------------------
char* Session::reserve(std::size_t bytes) noexcept {
  if (bytes <= net::Connection::send_copy_bytes_max && core_.scratch_owner_ != this && unsent_.empty() && input_.empty()) [[likely]] {
    const std::span<std::byte> frame = connection().frame();
    if (!frame.empty()) [[likely]] {
      room_ = Room::frame;
      reserved_ = reinterpret_cast<char*>(frame.data());
      return reserved_;
    }
  }
  return reserve_elsewhere(bytes);
}

char* Session::reserve_elsewhere(std::size_t bytes) noexcept {
  if (bytes <= HttpCore::scratch_bytes / 4) {
    if (core_.scratch_owner_ != this || core_.scratch_used_ + bytes > HttpCore::scratch_bytes) {
      if (core_.scratch_owner_ == this) {
        flush_scratch();
      } else if (core_.scratch_owner_ != nullptr) {
        core_.scratch_owner_->flush();
      }
      if (ended_) return nullptr;
      core_.scratch_owner_ = this;
    }
    room_ = Room::scratch;
    reserved_ = core_.scratch_.get() + core_.scratch_used_;
    return reserved_;
  }
  room_ = Room::block;
  reserved_ = static_cast<char*>(std::malloc(bytes));
  if (reserved_ == nullptr) {
    core_.statistics.no_memory.add();
    abort();
  }
  return reserved_;
}

void Session::commit(const char* end) noexcept {
  const auto bytes = static_cast<std::size_t>(end - reserved_);
  sent_bytes_ += bytes;
  core_.statistics.bytes_sent.add(bytes);
  if (room_ == Room::frame) [[likely]]
    return connection().send_frame(bytes);
  commit_elsewhere(bytes);
}

void Session::commit_elsewhere(std::size_t bytes) noexcept {
  if (room_ == Room::scratch) {
    core_.scratch_used_ += bytes;
    if (!working_ && core_.end_hook_ != nullptr) core_.end_hook_->request();
    return;
  }
  (void)append(net::Buffer::reference({reinterpret_cast<const std::byte*>(reserved_), bytes}, &free_block, reserved_), bytes);
}

// --- Queue -------------------------------------------------------------------------------------------------------------------------------
bool Session::send_bytes(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() <= HttpCore::scratch_bytes / 4) {
    char* const to = reserve(bytes.size());
    if (to == nullptr) return false;
    std::memcpy(to, bytes.data(), bytes.size());
    commit(to + bytes.size());
    return true;
  }
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), copy_bytes_max))) {
    const auto part = bytes.first(std::min(bytes.size(), copy_bytes_max));
    sent_bytes_ += part.size();
    core_.statistics.bytes_sent.add(part.size());
    if (!append(net::Buffer::copy(part), part.size())) return false;
  }
  return true;
}

bool Session::send_buffer(net::Buffer&& buffer) noexcept {
  const std::size_t bytes = buffer.bytes();
  sent_bytes_ += bytes;
  core_.statistics.bytes_sent.add(bytes);
  net::Buffer divided;
  if (!append_divided(divided, std::move(buffer))) divided.clear();
  return append(std::move(divided), bytes);
}

/// `bytes`: the expected size; a smaller buffer means that there was no memory, and the stream has a gap then, so it must end.
bool Session::append(net::Buffer&& buffer, std::size_t bytes) noexcept {
  if (ended_) return false;
  if (buffer.bytes() != bytes) {
    core_.statistics.no_memory.add();
    abort();
    return false;
  }
  if (core_.scratch_owner_ == this) flush_scratch();
  if (core_.output_bytes_ + bytes > core_.limits.output_bytes_max * CoreLimits::output_abort_factor) {
    core_.statistics.output_refused.add();
    abort();
    return false;
  }
  unsent_.append(std::move(buffer));
  charge(bytes);
  if (!working_) push();
  return !ended_;
}

void Session::charge(std::size_t bytes) noexcept {
  charged_bytes_ += bytes;
  core_.output_bytes_ += bytes;
}

/// Short responses in frames are not charged, so the charge may be smaller than the bytes in flight.
void Session::settle_charge() noexcept {
  if (charged_bytes_ == 0) return;
  const std::size_t now = std::min(charged_bytes_, in_flight());
  core_.output_bytes_ -= charged_bytes_ - now;
  charged_bytes_ = now;
}

void Session::flush() noexcept {
  if (core_.scratch_owner_ == this) flush_scratch();
  push();
  if (!ended_ && above_watermark()) {
    output_waits_ = true;
    request_room();
  }
}

/// Moves the gathered bytes on to the connection or the queue.
void Session::flush_scratch() noexcept {
  core_.scratch_owner_ = nullptr;
  const std::size_t bytes = std::exchange(core_.scratch_used_, 0);
  if (bytes == 0 || ended_) return;
  const auto gathered = std::as_bytes(std::span(core_.scratch_.get(), bytes));
  if (unsent_.empty() && bytes <= net::Connection::send_copy_bytes_max && connection().send_copy(gathered)) return;
  net::Buffer copied = net::Buffer::copy(gathered);
  if (copied.bytes() != bytes) {
    core_.statistics.no_memory.add();
    return abort();
  }
  unsent_.append(std::move(copied));
  charge(bytes);
}

/// Passes as much of the queue to the connection as that accepts.
void Session::push() noexcept {
  while (!unsent_.empty()) {
    const std::size_t space = connection().send_space_bytes();
    std::size_t bytes = 0;
    for (const net::Buffer::Piece* piece = unsent_.first(); piece != nullptr; piece = piece->next) {
      if (bytes != 0 && bytes + piece->bytes > space) break;
      bytes += piece->bytes;
    }
    net::Buffer batch;
    unsent_.move_pieces(static_cast<std::uint32_t>(bytes), batch);
    const auto sent = connection().send(std::move(batch));
    if (sent) continue;
    if (sent.error().code != ErrorCode::full) return abort();
    core_.statistics.send_waits.add();
    batch.append(std::move(unsent_));
    unsent_ = std::move(batch);
    return;  // `writable` follows
  }
}

bool Session::above_watermark() noexcept { return in_flight() > server_.limits.high_watermark_bytes; }

/// The connection calls `writable` when there is room for the last refused `send`, or when all is acknowledged. With a client that delays
/// its last acknowledgement, the latter may take 40 ms. So a send that is certain to be refused asks for the room of the low watermark.
void Session::request_room() noexcept {
  if (!unsent_.empty()) return;  // a send was refused already
  const std::size_t low = std::min<std::size_t>(server_.limits.low_watermark_bytes, net::Connection::send_queue_bytes_max - 1);
  const std::size_t wanted = net::Connection::send_queue_bytes_max - low;
  if (connection().send_space_bytes() >= wanted) return resume_later();  // a connection with a large window
  net::Buffer never = net::Buffer::reference({&never_sent, wanted}, nullptr, nullptr);
  if (never.empty()) return;  // `writable` follows when all is acknowledged
  require(!connection().send(std::move(never)), "webserver: a send beyond the room is refused", wanted);
}

void Session::writable() {
  settle_charge();
  if (!unsent_.empty()) push();
  if (ended_) {
    if (unsent_.empty()) connection().close();
    return;
  }
  if (output_waits_ || drain_wanted_) settle_room();
}

void Session::resume() noexcept {
  if (ended_) return;
  settle_charge();
  if (output_waits_ || drain_wanted_) settle_room();
  if (!output_waits_) work();
}

void Session::settle_room() noexcept {
  if (in_flight() > server_.limits.low_watermark_bytes) return request_room();
  output_waits_ = false;
  event_requests_ = 0;
  if (std::exchange(drain_wanted_, false) && exchange_ != nullptr) {
    Exchange& exchange = *exchange_;
    exchange.add_reference();
    application().writable(exchange);
    exchange.drop_reference();
  }
  work();
}

}  // namespace neap::webserver
