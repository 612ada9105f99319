// SPDX-License-Identifier: BSL-1.0
// Handlers for connection tests: one records everything and sends a known pattern, one echoes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel/timer.hpp"
#include "net/network.hpp"

namespace neap::net::testing {

/// Byte `index` of the pattern `seed`. The pattern has no period that divides a segment's size.
constexpr std::byte pattern(std::size_t index, unsigned seed) {
  return static_cast<std::byte>((index * 2654435761U >> 13 ^ index ^ seed * 37U) & 0xFF);
}

/// A test's record of one connection. The test may read the atomics at any time, and the other members once `closed` is set.
struct Record {
  std::atomic<std::size_t> received{0}, mismatches{0};
  std::atomic<int> peer_closed{0}, closed{0}, destroyed{0}, writable{0}, calls_after_closed{0};
  std::atomic<bool> inside_call{false}, nested{false};
  std::atomic<std::size_t> sent{0};
  std::string text;  ///< received text, with `keep_text`
};

class RecordingHandler : public ConnectionHandler {
 public:
  struct Behaviour {
    unsigned check_seed = 0;     ///< seed of the expected pattern; 0: no check
    unsigned send_seed = 0;      ///< seed of the sent pattern
    std::size_t send_bytes = 0;  ///< bytes of the pattern to send
    std::size_t piece_bytes = 16384;
    bool by_reference = true, keep_text = false;
    bool close_when_sent = true;  ///< close when all was sent and `expect_bytes` were received
    std::size_t expect_bytes = 0;
    bool answer_close = true;                                    ///< close when the peer closes
    std::function<void(RecordingHandler&, Buffer)> on_received;  ///< gets the buffer; without this function it is released at once
  };

  RecordingHandler(std::shared_ptr<Record> record, Behaviour behaviour) : record_(std::move(record)), behaviour_(std::move(behaviour)) {}
  ~RecordingHandler() override {
    if (record_->inside_call) record_->nested = true;
    ++record_->destroyed;
  }

  void received(Buffer data) override {
    const Call call(*this);
    for (const Buffer::Piece* piece = data.first(); piece != nullptr; piece = piece->next) {
      for (std::uint32_t i = 0; i < piece->bytes; ++i) {
        if (behaviour_.check_seed != 0 && piece->data[i] != pattern(record_->received + i, behaviour_.check_seed)) ++record_->mismatches;
      }
      if (behaviour_.keep_text) record_->text.append(reinterpret_cast<const char*>(piece->data), piece->bytes);
      record_->received += piece->bytes;
    }
    close_if_done();
    if (behaviour_.on_received) behaviour_.on_received(*this, std::move(data));
  }
  void writable() override {
    const Call call(*this);
    ++record_->writable;
    send_more();
  }
  void peer_closed() override {
    const Call call(*this);
    ++record_->peer_closed;
    if (behaviour_.answer_close) connection().close();
  }
  void closed() override {
    const Call call(*this);
    ++record_->closed;
  }

  /// MUST NOT be called before the handler has its connection.
  void send_more() {
    while (record_->sent < behaviour_.send_bytes) {
      const std::size_t bytes = std::min(behaviour_.piece_bytes, behaviour_.send_bytes - record_->sent);
      auto* const block = new std::vector<std::byte>(bytes);
      for (std::size_t i = 0; i < bytes; ++i) (*block)[i] = pattern(record_->sent + i, behaviour_.send_seed);
      Buffer buffer;
      if (behaviour_.by_reference) {
        // The release overwrites and frees the bytes, so a later read of them shows as wrong bytes or a sanitizer's report.
        buffer = Buffer::reference(
            *block,
            [](void* owner) noexcept {
              auto* const own = static_cast<std::vector<std::byte>*>(owner);
              std::memset(own->data(), 0xEE, own->size());
              delete own;
            },
            block);
      } else {
        buffer = Buffer::copy(*block);
        delete block;
      }
      if (!connection().send(std::move(buffer)).has_value()) return;
      record_->sent += bytes;
    }
    close_if_done();
  }
  void close_if_done() {
    if (behaviour_.send_bytes + behaviour_.expect_bytes == 0 || !behaviour_.close_when_sent) return;
    if (record_->sent == behaviour_.send_bytes && record_->received >= behaviour_.expect_bytes) connection().close();
  }
  Record& record() { return *record_; }

 private:
  struct Call {
    explicit Call(RecordingHandler& handler) : record(*handler.record_) {
      if (record.inside_call.exchange(true)) record.nested = true;
      if (record.closed > 0) ++record.calls_after_closed;
    }
    ~Call() { record.inside_call = false; }
    Record& record;
  };

  std::shared_ptr<Record> record_;
  Behaviour behaviour_;
  Timer begin_;

 public:
  /// Starts to send in a separate event, after the handler was made.
  void begin_sending() {
    begin_.arm(std::chrono::nanoseconds(0), [this] { send_more(); });
  }
};

inline std::function<std::unique_ptr<ConnectionHandler>(Connection&)> recording(std::shared_ptr<Record> record,
                                                                                RecordingHandler::Behaviour behaviour = {}) {
  return [record, behaviour](Connection&) -> std::unique_ptr<ConnectionHandler> {
    auto handler = std::make_unique<RecordingHandler>(record, behaviour);
    if (behaviour.send_bytes > 0) handler->begin_sending();
    return handler;
  };
}

[[nodiscard]] inline bool ended(const Record& record) { return record.destroyed > 0; }

inline void expect_ended_well(const Record& record) {
  EXPECT_EQ(record.closed, 1);
  EXPECT_EQ(record.destroyed, 1);
  EXPECT_EQ(record.calls_after_closed, 0);
  EXPECT_FALSE(record.nested);
  EXPECT_EQ(record.mismatches, 0U);
}

/// Echoes received bytes without a copy.
class EchoHandler final : public ConnectionHandler {
 public:
  void received(Buffer data) override {
    waiting_.append(std::move(data));
    forward();
  }
  void writable() override { forward(); }

 private:
  void forward() {
    if (!waiting_.empty() && waiting_.bytes() <= connection().send_space_bytes()) {
      EXPECT_TRUE(connection().send(std::exchange(waiting_, Buffer{})).has_value());
    }
  }
  Buffer waiting_;
};

inline auto echoing() {
  return [](Connection&) { return std::make_unique<EchoHandler>(); };
}

}  // namespace neap::net::testing
