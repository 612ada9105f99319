// SPDX-License-Identifier: BSL-1.0
// An engine for tests: runs scripts and keeps the lines of their console.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/webserver/engine/engine.hpp"
#include "apps/webserver/engine/strings.hpp"

namespace neap::webserver {

/// With sanitizers, a frame of QuickJS's interpreter needs several times the stack.
constexpr std::uint32_t test_stack_bytes = 1 << 20;

class TestEngine {
 public:
  explicit TestEngine(std::vector<ArchiveFile> files = {}, std::string_view entry = "server.js", EngineOptions options = {}) {
    if (!files.empty()) block_ = make_archive(std::move(files), entry);
    options.stack_bytes = test_stack_bytes;
    options.console = [this](ConsoleLevel, std::string_view line) { lines_ += std::string(line) + "\n"; };
    const auto archive = block_.empty() ? Result<Archive>(Archive{}) : Archive::open(block_);
    EXPECT_TRUE(archive.has_value());
    auto made = Engine::make(std::move(options), *archive);
    if (made) engine_ = std::move(*made);
    EXPECT_NE(engine_, nullptr) << lines_;
  }
  TestEngine& operator=(TestEngine&&) = delete;

  Engine& operator*() noexcept { return *engine_; }
  Engine* operator->() noexcept { return engine_.get(); }

  /// Runs a script; returns the lines that it printed, and after them its error.
  std::string run(std::string_view source, std::string_view path = "/test.js") {
    lines_.clear();
    const auto result = engine_->run_source(source, path);
    error_ = result ? "" : result.error();
    return lines();
  }
  std::string run_entry() {
    lines_.clear();
    const auto result = engine_->run_entry();
    error_ = result ? "" : result.error();
    return lines();
  }
  /// Calls a global function as a turn.
  Engine::Outcome call(const char* name) {
    const Value global(engine_->context(), JS_GetGlobalObject(engine_->context()));
    const Value function(engine_->context(), JS_GetPropertyStr(engine_->context(), global.get(), name));
    return engine_->call(function.get(), JS_UNDEFINED, {});
  }
  /// Returns the lines since the last call of this or `run`.
  std::string lines() { return std::exchange(lines_, {}); }
  [[nodiscard]] const std::string& error() const noexcept { return error_; }

 private:
  std::vector<std::byte> block_;
  std::string lines_, error_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace neap::webserver
