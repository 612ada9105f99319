// SPDX-License-Identifier: BSL-1.0
// The text of a transaction's answer: what the terminal of the specification would show, as one line of words.
//
// A client that wants to check an answer can parse it, and a load generator skips it. The text is bounded, so that an answer fits one
// frame.
#pragma once

#include <cstddef>
#include <span>

#include "apps/tpcc/inputs.hpp"
#include "apps/tpcc/procedures.hpp"
#include "apps/tpcc/service.hpp"

namespace neap::tpcc {

/// Writes the answer of a transaction that has committed, or of a NewOrder that was rolled back. Returns the number of bytes.
[[nodiscard]] std::size_t write_answer(const Inputs& inputs, const Result& result, std::span<char, answer_bytes_max> text) noexcept;

}  // namespace neap::tpcc
