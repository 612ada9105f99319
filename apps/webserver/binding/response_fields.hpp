// SPDX-License-Identifier: BSL-1.0
// The fields and the status of a response that is not sent yet. Internal to binding/.
//
// Node keeps what `setHeader` gave, and returns it by `getHeader` as it was. So these fields are values of JavaScript until the head is
// made. Fields that are only given to `writeHead` become lines at once.
#pragma once

#include <cstdint>

#include "apps/webserver/binding/message.hpp"

namespace neap::webserver {

// Each function returns false if it threw an exception.

/// ERR_HTTP_INVALID_STATUS_CODE unless the status is that of a final response.
[[nodiscard]] bool check_status(JSContext* context, std::int32_t status) noexcept;
/// Makes the head's lines of the stored fields.
[[nodiscard]] bool add_stored_lines(JSContext* context, Message& message) noexcept;
/// Makes the head's lines of the stored fields and of those in an object, or in an array of names and values. The latter replace the
/// former.
[[nodiscard]] bool add_given_lines(JSContext* context, Message& message, JSValueConst given) noexcept;
/// Appends the lines of an object, or of an array of names and values.
[[nodiscard]] bool add_lines_of(JSContext* context, HeaderLines& lines, JSValueConst given) noexcept;
/// Adds setHeader, statusCode and so on to ServerResponse.prototype.
[[nodiscard]] bool install_response_fields(JSContext* context, JSValueConst prototype) noexcept;

}  // namespace neap::webserver
