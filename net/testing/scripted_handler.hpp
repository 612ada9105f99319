// SPDX-License-Identifier: BSL-1.0
// The application of a ScriptedMachine. Internal to scripted_machine.cpp and scripted_record.cpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "net/testing/scripted_machine.hpp"

namespace neap::net::testing {

inline constexpr std::size_t answered_bytes = 64;  ///< with the habit `answer`, one answer for so many bytes
inline constexpr std::size_t held_bytes_max = 200'000;

class ScriptedMachine::Handler final : public ConnectionHandler {
 public:
  Handler(ScriptedMachine& script, unsigned peer) : script_(script), peer_(peer), number_(script.connections_++) {
    script_.peers_[peer_].handler = this;
    record(HandlerCall::Kind::accepted);
  }
  ~Handler() override {
    if (script_.peers_[peer_].handler == this) script_.peers_[peer_].handler = nullptr;
  }

  /// Segments that arrive together may be received in one call or in several. So each piece is handled like a call of its own, and bytes
  /// behind those at which the handler closed the connection are not recorded.
  void received(Buffer data) override {
    ++script_.received_calls_;
    while (!data.empty() && !closes_) {
      Buffer::Piece* next = data.detach();
      Buffer one(*std::exchange(next, next->next));
      while (next != nullptr) data.append_piece(*std::exchange(next, next->next));
      received_piece(std::move(one));
    }
  }
  void received_piece(Buffer data) {
    const Bytes bytes(data.front().begin(), data.front().end());
    const std::size_t before = received_bytes_;
    received_bytes_ += bytes.size();
    record(HandlerCall::Kind::received, bytes);
    if (throws) throw std::bad_alloc();
    switch (habit) {
      case Habit::release:
        return;
      case Habit::hold:
        return hold(std::move(data));
      case Habit::hold_half: {
        hold(std::move(data));
        return kept_.drop_front(kept_.bytes() / 2);
      }
      case Habit::echo:
        if (!script_.options_.echo_by_reference) {
          if (bytes.size() <= connection().send_space_bytes()) static_cast<void>(connection().send(Buffer::copy(bytes)));
          return;
        }
        hold(std::move(data));
        if (kept_.bytes() <= connection().send_space_bytes()) static_cast<void>(connection().send(std::exchange(kept_, Buffer{})));
        return;
      case Habit::answer:
        for (std::size_t i = before / answered_bytes; i < received_bytes_ / answered_bytes; ++i) send(answer_bytes);
        return;
      case Habit::close:
        closes_ = true;
        return connection().close();
    }
  }
  void writable() override { record(HandlerCall::Kind::writable); }
  void peer_closed() override {
    record(HandlerCall::Kind::peer_closed);
    if (answers_close) connection().close();
  }
  void closed() override { record(HandlerCall::Kind::closed); }

  void send(std::size_t bytes) {
    Buffer data;
    for (std::size_t left = std::min(bytes, connection().send_space_bytes()); left > 0;) {
      const std::size_t now = std::min(left, piece_bytes);
      auto* const block = new Bytes(now);
      for (std::size_t i = 0; i < now; ++i) (*block)[i] = pattern(sent_bytes_ + i, 80 + peer_);
      if (by_reference) {
        // The release overwrites the bytes, so a later read of them shows as wrong bytes or a sanitizer's report.
        data.append(Buffer::reference(
            *block,
            [](void* owner) noexcept {
              auto* const own = static_cast<Bytes*>(owner);
              std::memset(own->data(), 0xEE, own->size());
              delete own;
            },
            block));
      } else {
        data.append(Buffer::copy(*block));
        delete block;
      }
      sent_bytes_ += now;
      left -= now;
    }
    if (!data.empty()) static_cast<void>(connection().send(std::move(data)));
  }
  void release(std::size_t bytes) { kept_.drop_front(std::min(kept_.bytes(), bytes)); }
  [[nodiscard]] std::size_t kept_bytes() const { return kept_.bytes(); }
  [[nodiscard]] ConnectionState& state() { return ConnectionState::of(connection()); }

  Habit habit = Habit::release;
  std::size_t answer_bytes = 100, piece_bytes = 16384;
  bool by_reference = false, answers_close = true, throws = false;

 private:
  void hold(Buffer data) {
    kept_.append(std::move(data));
    if (kept_.bytes() > held_bytes_max) kept_.clear();
  }
  void record(HandlerCall::Kind kind, Bytes bytes = {}) {
    const std::lock_guard lock(script_.lock_);
    script_.calls_.push_back({.kind = kind, .connection = number_, .bytes = std::move(bytes)});
  }

  ScriptedMachine& script_;
  const unsigned peer_, number_;
  std::size_t received_bytes_ = 0, sent_bytes_ = 0;
  bool closes_ = false;
  Buffer kept_;
};

}  // namespace neap::net::testing
