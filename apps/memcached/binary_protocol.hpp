// SPDX-License-Identifier: BSL-1.0
// The binary protocol (memcached's doc/protocol-binary.txt), as in memcached 1.6: all commands except SASL and tap, with quiet forms.
//
// Every request has a header of 24 bytes with the length of the rest, so the parser searches for no delimiter. Quiet commands suppress the
// expected reply (a miss, or success); errors are always sent. An expiry is unsigned, so it cannot be negative as in the text protocol. A
// request with contradictory lengths gets an error and ends the connection, because the next request's start is unknown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "apps/memcached/protocol.hpp"

namespace neap::memcached {

class BinaryProtocol {
 public:
  static constexpr std::size_t header_bytes = 24;
  static constexpr std::size_t input_bytes_max = header_bytes + 255 + key_bytes_max;
  static constexpr char request_magic = static_cast<char>(0x80);
  /// Returns the size of the item that `step` with this input allocates, 0 if none.
  [[nodiscard]] std::size_t item_bytes_needed(std::string_view input, const Store& store) const noexcept;

  /// Executes the request at the front of `input` once its extras and key have arrived. Returns the consumed bytes; 0: more are needed.
  [[nodiscard]] std::size_t step(std::string_view input, Context& context) noexcept;
  [[nodiscard]] std::size_t wants(std::string_view input, std::string_view more) const noexcept;
  void transfer_done(Context& context) noexcept;

 private:
  enum class Status : std::uint16_t {
    ok = 0x00,
    not_found = 0x01,
    exists = 0x02,
    too_large = 0x03,
    invalid = 0x04,
    not_stored = 0x05,
    not_numeric = 0x06,
    not_allowed = 0x20,
    unknown_command = 0x81,
    out_of_memory = 0x82,
  };

  struct Header {
    std::uint8_t opcode = 0, extras_bytes = 0;
    std::uint16_t key_bytes = 0;
    std::uint32_t body_bytes = 0;
    std::uint32_t opaque = 0;  ///< in the byte order received
    std::uint64_t cas = 0;
  };

  /// A request whose extras and key have arrived. Its value, if any, follows in the stream.
  struct Request {
    Header header;
    std::string_view extras, key;
    std::uint8_t command = 0;  ///< the opcode of the form that is not quiet
    bool quiet = false;
    [[nodiscard]] std::uint32_t value_bytes() const noexcept { return header.body_bytes - header.extras_bytes - header.key_bytes; }
    /// True if the request has exactly these parts, and no value.
    [[nodiscard]] bool has_only(std::size_t extras_bytes, bool with_key) const noexcept {
      return extras.size() == extras_bytes && key.empty() != with_key && value_bytes() == 0;
    }
  };

  static Header read_header(std::string_view input) noexcept;
  void execute(const Request& request, Context& context);
  void get(const Request& request, bool with_key, bool with_touch, Context& context) noexcept;
  void touch(const Request& request, Context& context) noexcept;
  void store(const Request& request, Mode mode, Context& context) noexcept;
  void remove(const Request& request, Context& context) noexcept;
  void count(const Request& request, bool up, Context& context) noexcept;
  void flush(const Request& request, Context& context) noexcept;
  void statistics(const Request& request, Context& context);

  static void write_head(char* to, const Header& request, Status status, std::size_t key_bytes, std::size_t extras_bytes,
                         std::size_t body_bytes, std::uint64_t cas) noexcept;
  static void answer(const Header& request, Context& context, Status status, std::string_view extras, std::string_view key,
                     std::string_view value, std::uint64_t cas) noexcept;
  static void say_ok(const Request& request, Context& context, std::uint64_t cas) noexcept;
  static void say_error(const Header& request, Context& context, Status status) noexcept;
  /// Answers with the status `invalid` and ends the connection.
  static void refuse(const Header& request, Context& context) noexcept;

  Header storing_;  ///< the header of the request whose value is being received
};

}  // namespace neap::memcached
