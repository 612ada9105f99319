// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/engine.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "apps/webserver/engine/engine_state.hpp"
#include "apps/webserver/engine/modules.hpp"
#include "apps/webserver/engine/timers.hpp"
#include "kernel/machine.hpp"

namespace neap::webserver {

namespace {

/// QuickJS's small blocks come from arenas of its own, so these are called for arenas and large blocks only. QuickJS counts the bytes.
constexpr JSMallocFunctions memory_functions = {
    .js_calloc = [](void*, std::size_t count, std::size_t bytes) { return std::calloc(count, bytes); },
    .js_malloc = [](void*, std::size_t bytes) { return std::malloc(bytes); },
    .js_free = [](void*, void* memory) { std::free(memory); },
    .js_realloc = [](void*, void* memory, std::size_t bytes) { return std::realloc(memory, bytes); },
    .js_malloc_usable_size = [](const void* memory) { return malloc_usable_size(const_cast<void*>(memory)); },
};

}  // namespace

Engine::Engine(EngineOptions options, Archive scripts) noexcept : options_(std::move(options)), scripts_(scripts) {}

Result<std::unique_ptr<Engine>> Engine::make(EngineOptions options, Archive scripts) {
  require(options.watchdog_ms != 0, "an engine without a watchdog");
  std::unique_ptr<Engine> engine(new Engine(std::move(options), scripts));
  engine->state_ = std::make_unique<State>();
  engine->runtime_ = JS_NewRuntime2(&memory_functions, nullptr);
  if (engine->runtime_ == nullptr) return failure(ErrorCode::out_of_memory, "no memory for JavaScript");
  JS_UpdateStackTop(engine->runtime_);
  JS_SetMaxStackSize(engine->runtime_, engine->options_.stack_bytes);
  engine->context_ = JS_NewContext(engine->runtime_);
  if (engine->context_ == nullptr) return failure(ErrorCode::out_of_memory, "no memory for JavaScript");
  JS_SetContextOpaque(engine->context_, engine.get());
  if (!engine->start()) return failure(ErrorCode::invalid, "the library of scripts does not start");
  engine->collect();
  const std::size_t limit = engine->options_.memory_max_bytes;
  if (limit != 0 && JS_GetMemorySize(engine->runtime_) > limit / 2) {
    return failure(ErrorCode::out_of_memory, "the limit of memory is too small for the library of scripts", limit);
  }
  JS_SetMemoryLimit(engine->runtime_, limit);
  return engine;
}

bool Engine::start() {
  state_->watchdog_ticks = std::max<std::uint64_t>(machine::timestamp_hz() / 1000 * options_.watchdog_ms, 1);
  JS_SetGCThreshold(runtime_, static_cast<std::size_t>(-1));
  JS_SetGCTrigger(runtime_, &near_limit, this);
  JS_SetInterruptHandler(runtime_, &interrupt, this);
  JS_SetHostPromiseRejectionTracker(runtime_, &track_rejection, this);
  modules_ = std::make_unique<Modules>(*this);
  timers_ = std::make_unique<Timers>(*this);
  add_builtin_bindings(*this);
  const Turn turn = begin_turn();
  Outcome outcome = Outcome::ok;
  if (!modules_->start()) outcome = uncaught();
  return end_turn(turn, outcome) == Outcome::ok;
}

Engine::~Engine() {
  if (context_ != nullptr) {
    require(depth_ == 0, "an engine destroyed in its own turn", depth_);
    drop_work();
    if (timers_ != nullptr) timers_->stop_all();
    if (modules_ != nullptr) modules_->release();
    for (auto& [name, binding] : state_->bindings) JS_FreeValue(context_, binding.object);
    JS_FreeValue(context_, std::exchange(state_->uncaught_handler, JS_UNDEFINED));
    JS_FreeValue(context_, std::exchange(state_->rejection_handler, JS_UNDEFINED));
    state_->bindings.clear();
    state_->rejections.release(runtime_);
    JS_FreeContext(context_);
  }
  if (runtime_ != nullptr) JS_FreeRuntime(runtime_);
}

void Engine::add_binding(std::string name, BindingFill fill) {
  State::Binding& binding = state_->bindings[std::move(name)];
  require(JS_IsUndefined(binding.object), "a binding replaced after its first use");
  binding.fill = std::move(fill);
}

JSValue Engine::binding(std::string_view name) {
  const auto found = state_->bindings.find(name);
  if (found == state_->bindings.end()) {
    return JS_ThrowReferenceError(context_, "No such binding: %.*s", static_cast<int>(std::min<std::size_t>(name.size(), 100)),
                                  name.data());
  }
  State::Binding& binding = found->second;
  if (JS_IsUndefined(binding.object)) {
    const JSValue object = JS_NewObject(context_);
    if (JS_IsException(object)) return object;
    if (!binding.fill(*this, object)) {
      JS_FreeValue(context_, object);
      return JS_EXCEPTION;
    }
    binding.object = object;
  }
  return JS_DupValue(context_, binding.object);
}

JSValue Engine::internal_binding(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View name(context, count > 0 ? arguments[0] : JS_UNDEFINED);
  if (!name) return JS_EXCEPTION;
  return of(context).binding(*name);
}

JSValue Engine::new_internal_binding() noexcept { return JS_NewCFunction(context_, &internal_binding, "internalBinding", 1); }

JSClassID Engine::new_class(const JSClassDef& definition) noexcept {
  JSClassID id = 0;
  JS_NewClassID(runtime_, &id);
  require(JS_NewClass(runtime_, id, &definition) == 0, "no memory for a class of objects");
  return id;
}

std::expected<void, std::string> Engine::run_entry() {
  require(scripts_.size() != 0, "an engine without scripts has no entry");
  return run_reporting([this] { return modules_->run_main(scripts_.entry()); });
}

std::expected<void, std::string> Engine::run_source(std::string_view source, std::string_view path) {
  return run_reporting([this, source, path] { return modules_->run_source(source, path); });
}

std::expected<void, std::string> Engine::run_reporting(const std::function<bool()>& run) {
  std::string error;
  const Turn turn = begin_turn();
  require(turn.outermost, "a script that starts within a turn");
  state_->entry_error = &error;
  Outcome outcome = Outcome::ok;
  if (!run()) outcome = uncaught();
  outcome = end_turn(turn, outcome);
  state_->entry_error = nullptr;
  if (outcome == Outcome::ok && error.empty()) return {};
  return std::unexpected(std::move(error));
}

const EngineStatistics& Engine::statistics() noexcept {
  statistics_.memory_bytes = JS_GetMemorySize(runtime_);
  statistics_.memory_max_bytes = options_.memory_max_bytes;
  statistics_.timers_pending = timers_->pending();
  return statistics_;
}

}  // namespace neap::webserver
