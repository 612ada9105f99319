// SPDX-License-Identifier: BSL-1.0
// The second half of fuzz_control: many clients at once against the whole server.
//
// The clients connect without sending, stop reading, end in the middle of a line, guess tokens, and do all of this at the same time. A
// client with the token must be served in all cases, the event loops must continue, and no memory may be held afterwards.
#pragma once

#include <cstdint>

namespace neap::observe::testing {

/// Runs cases for `seconds`. An error ends the process by SIGABRT, a case without progress by SIGALRM.
void fuzz_clients(double seconds, std::uint64_t seed);

}  // namespace neap::observe::testing
