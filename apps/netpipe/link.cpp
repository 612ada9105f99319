// SPDX-License-Identifier: BSL-1.0
#include "apps/netpipe/link.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "kernel/log.hpp"

namespace neap::netpipe {

namespace {

/// Makes a piece of a message whose contents the peer checks.
net::Buffer checked_piece(const Session& session, std::size_t bytes) {
  auto block = std::make_unique<std::vector<std::byte>>(bytes);
  session.fill_bulk(*block);
  const std::span<const std::byte> span(*block);
  return net::Buffer::reference(span, [](void* owner) noexcept { delete static_cast<std::vector<std::byte>*>(owner); }, block.release());
}

}  // namespace

Link::Link(net::Connection& connection, std::unique_ptr<Session> session, const Filling& filling, Done done)
    : link_(connection), session_(std::move(session)), filling_(filling), done_(std::move(done)) {
  require(session_ != nullptr, "netpipe: a link has a session");
  session_->begin();
  idle_timer_.arm(idle_check_interval, [this] { check_idle(); });
  work(input_);
}

Link::~Link() {
  // If the network refused the handler, or the machine stops, `closed` was not called and the link still owns the session.
  if (session_ != nullptr) {
    session_->connection_lost("the connection ended");
    give_back();
  }
}

void Link::received(net::Buffer data) {
  if (ending_) return;
  active_ = true;
  if (!input_.empty()) [[unlikely]] {
    input_.append(std::move(data));
    return work(input_);
  }
  if (echo(data.bytes())) return;
  work(data);
  if (!data.empty() && !ending_) input_ = std::move(data);
}

void Link::writable() {
  if (ending_) return;
  active_ = true;
  work(input_);
}

void Link::peer_closed() {
  if (ending_) return;
  work(input_);
  if (ending_) return;
  session_->connection_lost("the peer closed the connection");
  end_if_done();
}

void Link::closed() {
  idle_timer_.cancel();
  silence_timer_.cancel();
  ending_ = true;
  input_.clear();
  unsent_.clear();
  if (session_ == nullptr) return;
  session_->connection_lost("the connection was reset or timed out");
  give_back();
}

/// Answers a whole message in the most frequent case, in which a session has little to do. Returns false, with no effect, in all others.
inline bool Link::echo(std::size_t bytes) {
  if (!session_->echoes(bytes) || bytes > Filling::block_bytes) return false;
  const std::span<const std::byte> answer = filling_.first(bytes);
  if (bytes <= net::Connection::send_copy_bytes_max) {
    if (!link_.send_copy(answer)) return false;
  } else if (net::Buffer reference = net::Buffer::reference(answer, nullptr, nullptr);
             reference.empty() || !link_.send(std::move(reference)).has_value()) {
    return false;
  }
  const std::uint64_t messages = session_->messages();
  session_->echoed();
  if (session_->messages() != messages) log::count_requests(1);
  return true;
}

/// Alternates between consuming and sending until neither makes progress.
void Link::work(net::Buffer& input) {
  const std::uint64_t messages = session_->messages();
  bool sent = false;
  do {
    consume(input);
    sent = send_short();
    if (session_->has_output() && send_output()) sent = true;
  } while (sent && !input.empty());
  if (session_->messages() > messages) log::count_requests(session_->messages() - messages);
  if (session_->awaits_mark()) [[unlikely]]
    watch_for_silence();
  if (session_->state() != Session::State::running) [[unlikely]]
    end_if_done();
}

/// Consumes input until output has to be sent first.
inline void Link::consume(net::Buffer& input) {
  while (!input.empty()) {
    std::size_t used = static_cast<std::size_t>(std::min<std::uint64_t>(session_->skippable_bytes(), input.bytes()));
    if (used != 0) [[likely]] {
      session_->skip(used);
    } else {
      used = session_->consume(input.front());
      require(used <= input.front().size(), "netpipe: a session consumed more than its input", used);
      if (used == 0) return;
    }
    input.drop_front(used);
  }
}

/// Sends a whole message of a frame's size, in the most frequent case. Returns false, with no effect, in all others.
inline bool Link::send_short() {
  const std::uint64_t bytes = session_->bulk_bytes();
  if (bytes - 1 >= net::Connection::send_copy_bytes_max || !session_->text().empty() || session_->mark_bytes() != 0 ||
      session_->options().integrity || !unsent_.empty())
    return false;
  if (!link_.send_copy(filling_.first(static_cast<std::size_t>(bytes)))) return false;
  session_->bulk_sent(bytes);
  return true;
}

/// Postpones the moment at which silence ends the message in progress.
void Link::watch_for_silence() {
  silence_timer_.arm(silence_limit, [this] { check_silence(); });
}

void Link::check_silence() {
  if (ending_ || !session_->awaits_mark()) return;
  session_->take_silence_as_mark();
  work(input_);
}

/// Sends output while the connection accepts it. Returns true if any byte was sent.
bool Link::send_output() {
  bool any = false;
  while (session_->has_output()) {  // output that an earlier `send` refused is in `unsent_`
    std::size_t bulk = 0;
    if (unsent_.empty()) {
      if (const auto text = session_->text(); !text.empty()) {
        unsent_ = net::Buffer::copy(text);
      } else {
        bulk = static_cast<std::size_t>(std::min<std::uint64_t>(session_->bulk_bytes(), Filling::block_bytes));
        const std::uint64_t mark_bytes = session_->mark_bytes();
        if (mark_bytes > 0) bulk = static_cast<std::size_t>(std::min<std::uint64_t>(bulk, mark_bytes));
        if (mark_bytes == 0 && session_->options().integrity) {
          unsent_ = checked_piece(*session_, bulk);
        } else {
          unsent_ = net::Buffer::reference(bulk == mark_bytes ? filling_.marked(bulk) : filling_.first(bulk), nullptr, nullptr);
        }
      }
      if (unsent_.empty()) throw std::bad_alloc();
    }
    const std::size_t bytes = unsent_.bytes();
    const bool was_text = !session_->text().empty();
    if (!link_.send(std::move(unsent_)).has_value()) return any;  // the connection will call `writable` or `closed`
    if (was_text) {
      session_->text_sent();
    } else {
      session_->bulk_sent(bytes);
    }
    any = true;
  }
  return any;
}

void Link::end_if_done() {
  if (ending_ || session_->state() == Session::State::running || session_->has_output()) return;
  ending_ = true;
  input_.clear();
  unsent_.clear();
  if (session_->state() == Session::State::failed) {
    link_.abort();
  } else {
    link_.close();
  }
  if (session_->role() == Role::receiver) give_back();
}

void Link::give_back() {
  require(session_ != nullptr && done_ != nullptr, "netpipe: a link returns its session once");
  std::exchange(done_, nullptr)(std::move(session_));
}

void Link::check_idle() {
  if (!std::exchange(active_, false)) {
    if (session_ != nullptr) session_->fail_idle(static_cast<unsigned>(idle_check_interval.count()));
    link_.abort();  // the connection will call `closed`
    return;
  }
  idle_timer_.arm(idle_check_interval, [this] { check_idle(); });
}

}  // namespace neap::netpipe
