// SPDX-License-Identifier: BSL-1.0
// JavaScript on one core.
//
// A script must not be able to stop the machine: it may loop for ever, allocate without end, recurse, or throw. It must also cost little,
// because a request of the web server has a budget of some thousand instructions. So an engine is one QuickJS runtime that belongs to one
// core, without locks. It has a limit of memory and of stack, and a watchdog that ends a turn. Cycles are collected before the core
// sleeps, not during a request.
//
// A turn is one call from C++ into JavaScript, with everything that it causes: the call, then the callbacks of process.nextTick, then the
// microtasks, until none is left. A turn that throws, or that the watchdog ends, does not end the engine: the error is reported and
// counted, and later turns run. A function of C++ that a script calls within a turn is a binding.
//
//   auto engine = Engine::make({}, scripts);
//   (*engine)->add_binding("http", [](Engine& engine, JSValueConst target) { … return true; });
//   auto started = (*engine)->run_entry();
//   if ((*engine)->call(handler, JS_UNDEFINED, arguments) != Engine::Outcome::ok) …
//
// All functions MUST be called on the core that made the engine. The bytes of one-byte strings (Latin-1) are read without a copy:
// strings.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/webserver/engine/archive.hpp"
#include "apps/webserver/engine/quickjs.hpp"
#include "kernel/error.hpp"
#include "kernel/panic.hpp"

namespace neap::webserver {

enum class ConsoleLevel : std::uint8_t { debug, log, warning, error };

struct EngineOptions {
  std::size_t memory_max_bytes = std::size_t{256} << 20;     ///< of this core's heap of JavaScript, 0: no limit
  std::uint32_t stack_bytes = 384 << 10;                     ///< of the core's stack, for JavaScript. It ends below the caller of `make`.
  std::uint32_t watchdog_ms = 1000;                          ///< a longer turn is ended
  std::uint32_t timers_max = 100'000;                        ///< pending timers and immediates of each kind
  std::size_t collection_step_bytes = std::size_t{1} << 20;  ///< growth of the heap after which an idle core collects cycles
  std::uint32_t console_bytes_per_s = 2 << 10;               ///< text beyond it is dropped and counted. A burst may have 8 times as much.
  std::vector<std::string> arguments;                        ///< process.argv after the script's path
  std::vector<std::pair<std::string, std::string>> environment;                ///< process.env
  std::move_only_function<void(ConsoleLevel, std::string_view line)> console;  ///< receives lines without newline; empty: neap::print
};

struct EngineStatistics {
  std::uint64_t turns = 0;
  std::uint64_t exceptions = 0;     ///< uncaught errors of turns, timeouts and lack of memory included
  std::uint64_t timeouts = 0;       ///< turns that the watchdog ended
  std::uint64_t out_of_memory = 0;  ///< turns that ended because the limit of memory was reached
  std::uint64_t unhandled_rejections = 0;
  std::uint64_t jobs_dropped = 0;  ///< microtasks and ticks of turns that the watchdog ended
  std::uint64_t microtasks = 0, ticks = 0;
  std::uint64_t timers_fired = 0, timers_refused = 0, immediates = 0;
  std::uint64_t collections = 0;       ///< of cycles, all
  std::uint64_t collections_busy = 0;  ///< those within a turn, because the heap neared its limit
  std::uint64_t collection_ns = 0;
  std::uint64_t console_bytes = 0, console_bytes_dropped = 0;
  std::uint64_t memory_bytes = 0, memory_max_bytes = 0;  ///< used now, and the limit
  std::uint64_t timers_pending = 0;
};

class Modules;
class Timers;

class Engine {
 public:
  enum class Outcome : std::uint8_t { ok, exception, timeout, out_of_memory };
  /// Fills the object that `internalBinding(name)` returns. False: an exception is pending.
  using BindingFill = std::move_only_function<bool(Engine&, JSValueConst target)>;

  /// Makes an engine for this core with its globals. `scripts` MAY have no files; then there is no entry. Errors: `out_of_memory`;
  /// `invalid` (the library's own scripts fail; the reason is on the console).
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(EngineOptions options, Archive scripts);
  Engine& operator=(Engine&&) = delete;
  ~Engine();

  /// The engine of a context of QuickJS: for bindings.
  [[nodiscard]] static Engine& of(JSContext* context) noexcept { return *static_cast<Engine*>(JS_GetContextOpaque(context)); }
  [[nodiscard]] JSContext* context() const noexcept { return context_; }
  [[nodiscard]] JSRuntime* runtime() const noexcept { return runtime_; }
  [[nodiscard]] const EngineOptions& options() const noexcept { return options_; }
  [[nodiscard]] const Archive& scripts() const noexcept { return scripts_; }

  /// The function `internalBinding(name)`, for the library's scripts and for tests.
  static JSValue internal_binding(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);
  /// MUST be called before a script asks for the binding. A second function of one name replaces the first.
  void add_binding(std::string name, BindingFill fill);

  /// Runs the archive's entry script as one turn. A module's top-level await MAY still wait for timers or the network when this returns; a
  /// later error is then reported as an uncaught error. The error is the text that was reported, with its stack.
  [[nodiscard]] std::expected<void, std::string> run_entry();
  /// Runs the source of a script (CommonJS) under a file name, as one turn. For tests.
  [[nodiscard]] std::expected<void, std::string> run_source(std::string_view source, std::string_view path = "/test.js");

  /// Calls a function as one turn and drops its result. Within a turn it is a part of that turn. An exception is reported and counted.
  /// Costs under 100 instructions beside the function.
  Outcome call(JSValueConst function, JSValueConst self, std::span<JSValueConst> arguments) noexcept {
    return call_with(function, self, arguments, [](JSValueConst) noexcept {});
  }
  /// The same. `use` gets the result, within the turn and before microtasks run.
  template <typename Use>
  Outcome call_with(JSValueConst function, JSValueConst self, std::span<JSValueConst> arguments, Use&& use) noexcept {
    const Turn turn = begin_turn();
    const JSValue result = JS_Call(context_, function, self, static_cast<int>(arguments.size()), arguments.data());
    Outcome outcome = Outcome::ok;
    if (JS_IsException(result)) [[unlikely]] {
      outcome = uncaught();
    } else {
      use(result);
      free_value(result);
    }
    return end_turn(turn, outcome);
  }
  /// Encloses several calls of QuickJS as one turn: `const Turn turn = begin_turn(); …; return end_turn(turn, outcome);`. An exception of
  /// the caller's own calls goes to `uncaught`.
  struct Turn {
    bool outermost;
  };
  [[nodiscard]] Turn begin_turn() noexcept {
    if (depth_++ != 0) return {false};
    deadline_ = 0;
    ++statistics_.turns;
    return {true};
  }
  Outcome end_turn(Turn turn, Outcome outcome) noexcept {
    if (turn.outermost && (work_ != 0 || JS_IsJobPending(runtime_))) [[unlikely]]
      outcome = drain(outcome);
    --depth_;
    return outcome;
  }
  /// Takes the pending exception, reports and counts it.
  Outcome uncaught() noexcept;
  /// True within a turn.
  [[nodiscard]] bool in_turn() const noexcept { return depth_ != 0; }

  /// The text of an error: name, message, stack and causes; of another value its string.
  [[nodiscard]] std::string describe(JSValueConst error);
  /// Writes text to the console, line by line, within the bound of `console_bytes_per_s`.
  void write_console(ConsoleLevel level, std::string_view text) noexcept;

  /// Collects cycles if the heap has grown by `collection_step_bytes` since the last collection. For an IdleHook. True: it collected.
  bool collect_if_worthwhile() noexcept;
  void collect() noexcept;

  [[nodiscard]] const EngineStatistics& statistics() noexcept;
  [[nodiscard]] Modules& modules() noexcept { return *modules_; }
  [[nodiscard]] Timers& timers() noexcept { return *timers_; }

  /// Frees a value without a call if it has no reference count.
  void free_value(JSValue value) const noexcept {
    if (JS_VALUE_HAS_REF_COUNT(value)) JS_FreeValue(context_, value);
  }
  /// A class of native objects. Register it once, keep the number in the binding's own state.
  [[nodiscard]] JSClassID new_class(const JSClassDef& definition) noexcept;

 private:
  friend struct ProcessBinding;
  friend class Modules;
  friend class Timers;
  enum Work : unsigned { ticks = 1, rejections = 2 };
  struct Tick;

  Engine(EngineOptions options, Archive scripts) noexcept;
  bool start();
  std::expected<void, std::string> run_reporting(const std::function<bool()>& run);
  static Outcome worse(Outcome first, Outcome second) noexcept;
  Outcome drain(Outcome outcome) noexcept;
  Outcome end_by_watchdog() noexcept;
  Tick* pop_tick() noexcept;
  void free_tick(Tick* tick) noexcept;
  bool call_handler(JSValueConst handler, JSValueConst error, JSValueConst promise) noexcept;
  std::size_t next_threshold() const noexcept;
  Outcome run_ticks(Outcome outcome) noexcept;
  Outcome run_jobs(Outcome outcome) noexcept;
  void report_rejections() noexcept;
  void drop_work() noexcept;
  bool past_deadline() noexcept;
  bool push_tick(JSValueConst function, int count, JSValueConst* arguments) noexcept;
  void report(std::string_view what, JSValueConst error) noexcept;
  static void track_rejection(JSContext* context, JSValueConst promise, JSValueConst reason, bool handled, void* engine);
  static int interrupt(JSRuntime* runtime, void* engine);
  static std::size_t near_limit(JSRuntime* runtime, void* engine);
  JSValue binding(std::string_view name);
  JSValue new_internal_binding() noexcept;

  JSRuntime* runtime_ = nullptr;
  JSContext* context_ = nullptr;
  std::uint64_t deadline_ = 0;  // as machine::timestamp; 0: the turn's first check sets it
  unsigned depth_ = 0;
  unsigned work_ = 0;  // bits of Work
  EngineStatistics statistics_;

  EngineOptions options_;
  Archive scripts_;
  std::unique_ptr<Modules> modules_;
  std::unique_ptr<Timers> timers_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace neap::webserver
