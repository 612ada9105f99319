// SPDX-License-Identifier: BSL-1.0
// The application's control command: it takes words and returns one line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apps/netpipe/service.hpp"

namespace neap::netpipe {

constexpr const char* command_usage = "netpipe,WHAT[,WORD...]";
constexpr const char* command_help =
    "WHAT: run (begins a measurement; words peer=A.B.C.D:PORT or [IPV6]:PORT, core=, and those of serve), stop (ends it before its next "
    "length), "
    "results[,RUN] (a run as in NPtcp's output file), serve[,from=,to=,perturbation=,repeats=,stream=,bidirectional=,integrity=,reset=] "
    "(sets how peers are served from now on; without words: shows it).";

/// `words` are the words after the command's name. Returns "ok ..." or "error: ...", without a line end. An error changes nothing.
[[nodiscard]] task<std::string> command(Service& service, std::span<const std::string_view> words);

}  // namespace neap::netpipe
