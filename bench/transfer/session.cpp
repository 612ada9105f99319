// SPDX-License-Identifier: BSL-1.0
#include "bench/transfer/session.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kernel/machine.hpp"

namespace neap::bench {

void Session::received(net::Buffer data) {
  if (state_ == State::request) take_request(data);
  if (state_ == State::receiving) count(data);
}

void Session::writable() {
  if (state_ == State::sending) send_blocks();
  if (state_ == State::answering) end();
}

void Session::take_request(net::Buffer& data) {
  const std::size_t room = request_bytes_.size() - request_size_;
  const std::size_t used = data.peek(std::span(request_bytes_).last(room));
  data.drop_front(used);
  request_size_ += used;
  if (request_size_ < request_bytes_.size()) return;
  std::memcpy(&request_, request_bytes_.data(), sizeof request_);
  if (!request_.is_valid()) {
    state_ = State::answered;
    return connection().abort();
  }
  begin();
}

void Session::begin() {
  begin_ns_ = machine::now_ns();
  left_bytes_ = request_.bytes;
  words_ = Words(request_.seed);
  switch (static_cast<Kind>(request_.kind)) {
    case Kind::up:
      state_ = State::receiving;
      break;
    case Kind::down:
      state_ = State::sending;
      send_blocks();
      break;
    case Kind::status: {
      const Status now = status();
      answer(std::as_bytes(std::span(&now, 1)));
      break;
    }
  }
}

void Session::count(net::Buffer& data) {
  while (!data.empty() && left_bytes_ != 0) {
    const auto piece = data.front();
    const std::size_t used = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left_bytes_));
    received_sum_.add(piece.first(used));
    left_bytes_ -= used;
    data.drop_front(used);
  }
  if (left_bytes_ != 0) return;
  const Received all{.bytes = request_.bytes, .sum = received_sum_.value(), .ns = machine::now_ns() - begin_ns_};
  answer(std::as_bytes(std::span(&all, 1)));
}

void Session::send_blocks() {
  while (pass_unsent()) {
    if (left_bytes_ == 0) {
      const std::uint64_t sum = sent_sum_.value();
      return answer(std::as_bytes(std::span(&sum, 1)));
    }
    const std::size_t bytes = static_cast<std::size_t>(std::min<std::uint64_t>(block_bytes, left_bytes_));
    auto block = std::make_unique<std::vector<std::byte>>(bytes);
    words_.fill(*block, sent_sum_);
    const std::span<const std::byte> span(*block);
    unsent_ =
        net::Buffer::reference(span, [](void* owner) noexcept { delete static_cast<std::vector<std::byte>*>(owner); }, block.release());
    if (unsent_.empty()) throw std::bad_alloc();
    left_bytes_ -= bytes;
  }
}

bool Session::pass_unsent() { return unsent_.empty() || connection().send(std::move(unsent_)).has_value(); }

/// Sends the last bytes, and the end of the stream. The peer may take any time for them, so the connection is not closed.
void Session::answer(std::span<const std::byte> bytes) {
  state_ = State::answering;
  unsent_ = net::Buffer::copy(bytes);
  end();
}

void Session::end() {
  if (!pass_unsent()) return;
  state_ = State::answered;
  connection().end_sending();
}

Status Session::status() noexcept {
  Status all{};
  for (unsigned core = 0; core < core_count(); ++core) {
    const net::Counters one = net::counters(core);
    all.open += one.connections_open;
    all.half_open += one.half_open;
    all.held_bytes += one.held_bytes;
    all.held_bytes_max = std::max(all.held_bytes_max, one.held_bytes_max);
    all.retransmissions += one.retransmissions;
  }
  return all;
}

}  // namespace neap::bench
