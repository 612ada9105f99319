// SPDX-License-Identifier: BSL-1.0
// The error of a function that can fail.
//
// Callers act on `code`; people read `message`. An error owns no memory, so it can report "out of memory" and can be made in an interrupt
// handler. It is the error type of `std::expected` throughout Neap.
#pragma once

#include <cstdint>
#include <expected>

namespace neap {

enum class ErrorCode : std::uint8_t {
  invalid,        ///< an argument or a setting is out of range; nothing was changed
  unsupported,    ///< this CPU, chipset or card cannot do it
  not_found,      ///< no such device, table or name
  out_of_memory,  ///< the request is refused; the system continues
  full,           ///< a bounded queue has no room; the function has counted the refusal
  timeout,        ///< a device or a peer did not answer within the time limit
  device,         ///< the device answered wrongly
  closed,         ///< the device or connection is gone, or the present state forbids the call
};

struct Error {
  ErrorCode code;
  const char* message;     ///< static text, no trailing stop or newline
  std::uint64_t detail{};  ///< a related number (register value, address, index); 0 if there is none
};

template <typename T>
using Result = std::expected<T, Error>;

[[nodiscard]] constexpr std::unexpected<Error> failure(ErrorCode code, const char* message, std::uint64_t detail = 0) {
  return std::unexpected(Error{.code = code, .message = message, .detail = detail});
}

}  // namespace neap
