// SPDX-License-Identifier: BSL-1.0
// The server's end of one transfer.
//
// The stack is what is measured, so a session keeps nothing back: received bytes are summed and released in place, and blocks to be sent
// are made as long as the connection has room.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/transfer/protocol.hpp"
#include "net/network.hpp"

namespace neap::bench {

class Session final : public net::ConnectionHandler {
 public:
  /// Size of the blocks that a server sends.
  static constexpr std::size_t block_bytes = 64 * 1024;

  void received(net::Buffer data) override;
  void writable() override;

 private:
  enum class State : std::uint8_t { request, receiving, sending, answering, answered };

  void take_request(net::Buffer& data);
  void begin();
  void count(net::Buffer& data);
  void send_blocks();
  void answer(std::span<const std::byte> bytes);
  /// Sends `unsent_`. Returns false if the connection has no room for it. `writable` follows then.
  [[nodiscard]] bool pass_unsent();
  void end();
  [[nodiscard]] static Status status() noexcept;

  State state_ = State::request;
  std::array<std::byte, sizeof(Request)> request_bytes_{};
  std::size_t request_size_ = 0;
  Request request_{};
  std::uint64_t begin_ns_ = 0;
  std::uint64_t left_bytes_ = 0;
  ByteSum received_sum_;
  Sum sent_sum_;
  Words words_{0};
  net::Buffer unsent_;  ///< the connection had no room for these bytes
};

}  // namespace neap::bench
