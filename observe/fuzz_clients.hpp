// SPDX-License-Identifier: BSL-1.0
// The second half of fuzz_control: many clients at once against the whole server.
//
// Peers do more than send lines. They also connect and say nothing, stop reading, end in the middle of a
// line, guess tokens, and do so all at once. In all cases a client with the token is served, the event loops go on, and afterwards
// nothing is held for them any more.
#pragma once

#include <cstdint>

namespace neap::observe::testing {

/// Runs cases for so long. Ends the process by SIGABRT at a finding, by SIGALRM if a case makes no progress.
void fuzz_clients(double seconds, std::uint64_t seed);

}  // namespace neap::observe::testing
