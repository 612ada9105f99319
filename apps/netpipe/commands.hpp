// SPDX-License-Identifier: BSL-1.0
// What control can ask of the application: words in, one line out.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/netpipe/service.hpp"

namespace neap::netpipe {

constexpr const char* command_usage =
    "netpipe,run,peer=A.B.C.D:PORT[,WORD=VALUE...] | netpipe,stop | netpipe,results[,RUN] | netpipe,serve[,WORD=VALUE...]";
constexpr const char* command_help =
    "measures with a listening NPtcp or Neap; ends that; shows a run in the form of NPtcp's output file; sets how others are served";

/// `words` are those after the command's name. "ok ..." or "error: ...", without a line's end; on an error nothing was changed.
[[nodiscard]] task<std::string> command(Service& service, std::span<const std::string_view> words);

}  // namespace neap::netpipe
