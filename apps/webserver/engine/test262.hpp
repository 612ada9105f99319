// SPDX-License-Identifier: BSL-1.0
// Runs tests of test262, the conformance suite of JavaScript, on the engine.
//
// QuickJS-ng passes most of the suite on Linux. The same code on the image has another C library, allocator and stack, so it could fail
// where it passes on the host. The same runner is therefore a host program and an image; tools/test262_soak.py compares their lines.
//
// The files are one archive: `list.txt`, the suite's `harness/*.js`, and its `test/**/*.js`. Python reads the metadata of the tests and
// writes the list, one line for each run, with fields separated by tabs:
//
//   path of the test in the archive
//   mode: sloppy, strict, module or raw
//   async, or -: the test calls $DONE
//   phase of the expected error, or -: parse, resolution or runtime
//   name of the expected error's constructor, or -
//   names of further harness files, separated by commas, or -
//
// Each run has a fresh context (realm) in a runtime that runs share. A run that the watchdog or the limit of memory ends gets its successor
// a fresh runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/webserver/engine/archive.hpp"
#include "apps/webserver/engine/engine.hpp"

namespace neap::webserver::test262 {

enum class Mode : std::uint8_t { sloppy, strict, module, raw };

struct Test {
  std::string_view path;
  Mode mode = Mode::sloppy;
  bool asynchronous = false;
  std::string_view phase, error;  ///< empty: no error is expected
  std::vector<std::string_view> includes;
};

class Runner {
 public:
  /// Errors: `invalid`: the archive has no list, or a line of it has a wrong form; its number is the detail. `watchdog_ms`: of one run.
  [[nodiscard]] static Result<Runner> make(Archive archive, std::uint32_t watchdog_ms);

  [[nodiscard]] std::size_t size() const noexcept { return tests_.size(); }
  /// Returns a line for the run: `262 NUMBER pass`, or `262 NUMBER fail REASON`. The reason is printable ASCII.
  [[nodiscard]] std::string run(std::size_t number);

 private:
  Runner(Archive archive, std::uint32_t watchdog_ms) : archive_(archive), watchdog_ms_(watchdog_ms) {}

  Archive archive_;
  std::uint32_t watchdog_ms_;
  std::vector<Test> tests_;
  std::unique_ptr<Engine> engine_;
  unsigned runs_ = 0;  ///< of `engine_`
};

}  // namespace neap::webserver::test262
