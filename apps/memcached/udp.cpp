// SPDX-License-Identifier: BSL-1.0
#include "apps/memcached/udp.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "apps/memcached/conversation.hpp"
#include "kernel/log.hpp"

namespace neap::memcached {

namespace {

// The header of each datagram: the request's number, the datagram's number in the message, the message's datagrams, and zero, each with 16
// bits in network order.
constexpr std::size_t header_bytes = 8;
constexpr std::size_t datagram_bytes_max = 1400;
constexpr std::size_t datagrams_max = 256;  // of one reply, so that a reply fits the card's ring

std::uint16_t read_16(const char* from) noexcept {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(from[0]) << 8 | static_cast<unsigned char>(from[1]));
}

void write_16(std::byte* to, std::size_t value) noexcept {
  to[0] = static_cast<std::byte>(value >> 8);
  to[1] = static_cast<std::byte>(value);
}

class Answerer {
 public:
  Answerer(net::Network& network, CoreState& core, const net::Datagram& datagram) noexcept
      : network_(network), core_(core), to_(datagram.from), port_(datagram.to.port) {}

  /// Sends `reply` in datagrams for the request with this number. A datagram that the card does not take is lost, and with it the reply.
  void send(std::uint16_t number, std::string_view reply) {
    constexpr std::size_t room = datagram_bytes_max - header_bytes;
    const std::size_t datagrams = (reply.size() + room - 1) / room;
    std::array<std::byte, datagram_bytes_max> bytes;
    for (std::size_t at = 0; at < datagrams; ++at) {
      const std::string_view part = reply.substr(at * room, room);
      write_16(&bytes[0], number);
      write_16(&bytes[2], at);
      write_16(&bytes[4], datagrams);
      write_16(&bytes[6], 0);
      std::memcpy(&bytes[header_bytes], part.data(), part.size());
      if (!network_.send_datagram(port_, to_, std::span(bytes).first(header_bytes + part.size()))) {
        core_.statistics.add(Count::udp_dropped);
        return;
      }
    }
    core_.statistics.add(Count::bytes_written, reply.size() + datagrams * header_bytes);
  }

 private:
  net::Network& network_;
  CoreState& core_;
  const net::Endpoint to_;
  const std::uint16_t port_;
};

/// Returns the whole reply to the requests in `input`. Requests that wait for memory or are incomplete, and those behind a full reply, are
/// dropped.
std::string answer(Service& service, CoreState& core, std::string_view input) {
  constexpr std::size_t reply_bytes_max = datagrams_max * (datagram_bytes_max - header_bytes);
  Reply reply(core.replies);
  Conversation conversation(service, core, Conversation::Answers::short_ones);
  const std::uint64_t requests = core.statistics.value(Count::requests);
  const bool all = conversation.consume(input, reply) == input.size() && conversation.idle();
  if (!all && !conversation.closing()) core.statistics.add(Count::udp_dropped);
  log::count_requests(core.statistics.value(Count::requests) - requests);
  if (reply.failed()) return "SERVER_ERROR out of memory writing response\r\n";
  if (reply.bytes() > reply_bytes_max) return "SERVER_ERROR response too large for UDP\r\n";
  std::string text;
  text.reserve(reply.bytes());
  reply.take(conversation.sendable_bytes(reply), [&text](const char* data, std::size_t bytes, Reply::Release release, void* owner) {
    text.append(data, bytes);
    release(owner);
  });
  return text;
}

void serve_datagram(net::Network& network, Service& service, net::Datagram datagram) {
  CoreState& core = service.core(this_core());
  std::string copy;  // of a datagram in several pieces, because parsers need contiguous bytes
  std::string_view bytes(reinterpret_cast<const char*>(datagram.data.front().data()), datagram.data.front().size());
  if (datagram.data.pieces() > 1) {
    copy.resize(datagram.data.bytes());
    (void)datagram.data.peek(std::as_writable_bytes(std::span(copy)));
    bytes = copy;
  }
  core.statistics.add(Count::bytes_read, bytes.size());
  if (bytes.size() <= header_bytes) return core.statistics.add(Count::udp_dropped);
  core.statistics.add(Count::udp_requests);
  const std::uint16_t number = read_16(bytes.data()), datagrams = read_16(bytes.data() + 4);
  Answerer answerer(network, core, datagram);
  if (datagrams > 1) return answerer.send(number, "SERVER_ERROR multi-packet request not supported\r\n");
  answerer.send(number, answer(service, core, bytes.substr(header_bytes)));
}

}  // namespace

task<Result<void>> serve_datagrams(net::Network& network, Service& service, std::uint16_t port) {
  co_return co_await network.receive_datagrams(
      port, [&network, &service](net::Datagram datagram) { serve_datagram(network, service, std::move(datagram)); });
}

}  // namespace neap::memcached
