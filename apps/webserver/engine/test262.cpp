// SPDX-License-Identifier: BSL-1.0
#include "apps/webserver/engine/test262.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/webserver/engine/strings.hpp"
#include "kernel/panic.hpp"

namespace neap::webserver::test262 {

namespace {

constexpr std::size_t memory_max_bytes = std::size_t{192} << 20;
constexpr unsigned runs_per_engine = 2000, runs_per_collection = 8;
constexpr std::size_t reason_bytes_max = 160;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<Test> read_line(std::string_view line) {
  const std::vector<std::string_view> fields = split(line, '\t');
  if (fields.size() != 6) return std::nullopt;
  constexpr std::string_view names[] = {"sloppy", "strict", "module", "raw"};
  const auto mode = std::ranges::find(names, fields[1]);
  if (mode == std::end(names)) return std::nullopt;
  const auto unless_dash = [](std::string_view field) { return field == "-" ? std::string_view() : field; };
  Test test{.path = fields[0],
            .mode = static_cast<Mode>(mode - std::begin(names)),
            .asynchronous = fields[2] == "async",
            .phase = unless_dash(fields[3]),
            .error = unless_dash(fields[4]),
            .includes = {}};
  if (fields[5] != "-") test.includes = split(fields[5], ',');
  return test;
}

/// One run: its realms, and what the test has printed.
class Run {
 public:
  Run(Engine& engine, const Archive& archive, const Test& test) : engine_(engine), archive_(archive), test_(test) {}
  Run& operator=(Run&&) = delete;
  ~Run() {
    for (JSContext* const realm : realms_) JS_FreeContext(realm);
  }
  /// Returns why the test failed; empty: it passed.
  std::string play();
  [[nodiscard]] bool ended_by_limit() const noexcept { return ended_by_limit_; }

 private:
  enum class Step : std::uint8_t { harness, parse, run };

  JSContext* add_realm();
  bool add_host_object(JSContext* context);
  bool evaluate(JSContext* context, std::string_view path, bool strict);
  bool evaluate_test(JSContext* context);
  std::string error_of(JSContext* context, JSValueConst error, bool constructor_only);
  std::string verdict(JSContext* context, bool done, Engine::Outcome outcome);

  static Run& of(JSContext* context) { return *static_cast<Run*>(JS_GetContextOpaque(context)); }
  static JSValue print(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);
  static JSValue create_realm(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);
  static JSValue evaluate_script(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);
  static JSValue detach(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);
  static JSValue collect(JSContext* context, JSValueConst self, int count, JSValueConst* arguments);
  static char* normalize(JSContext* context, const char* base, const char* name, void* archive);
  static JSModuleDef* load(JSContext* context, const char* name, void* archive, JSValueConst attributes);

  Engine& engine_;
  const Archive& archive_;
  const Test& test_;
  std::vector<JSContext*> realms_;
  Step step_ = Step::harness;
  JSValue promise_ = JS_UNDEFINED;
  std::string printed_;
  bool ended_by_limit_ = false;
};

JSContext* Run::add_realm() {
  JSContext* const context = JS_NewContext(engine_.runtime());
  if (context == nullptr) return nullptr;
  JS_SetContextOpaque(context, this);
  realms_.push_back(context);
  return add_host_object(context) ? context : nullptr;
}

/// `print` and `$262`, which the suite expects from its host (INTERPRETING.md). `$262.agent` is left out: there are no threads.
bool Run::add_host_object(JSContext* context) {
  const Value global(context, JS_GetGlobalObject(context));
  const JSValue host = JS_NewObject(context);
  if (JS_IsException(host)) return false;
  const auto add = [context](JSValueConst object, const char* name, JSCFunction* function, int length) {
    return JS_SetPropertyStr(context, object, name, JS_NewCFunction(context, function, name, length)) >= 0;
  };
  bool done = add(global.get(), "print", &print, 1);
  done = add(host, "createRealm", &create_realm, 0) && done;
  done = add(host, "evalScript", &evaluate_script, 1) && done;
  done = add(host, "detachArrayBuffer", &detach, 1) && done;
  done = add(host, "gc", &collect, 0) && done;
  done = JS_SetPropertyStr(context, host, "global", JS_DupValue(context, global.get())) >= 0 && done;
  return JS_SetPropertyStr(context, global.get(), "$262", host) >= 0 && done;
}

JSValue Run::print(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View text(context, count > 0 ? arguments[0] : JS_UNDEFINED);
  if (!text) return JS_EXCEPTION;
  std::string& printed = of(context).printed_;
  if (printed.size() < 1000) printed.append(*text).push_back('\n');
  return JS_UNDEFINED;
}

JSValue Run::create_realm(JSContext* context, JSValueConst, int, JSValueConst*) {
  JSContext* const realm = of(context).add_realm();
  if (realm == nullptr) return JS_ThrowOutOfMemory(context);
  const Value global(realm, JS_GetGlobalObject(realm));
  return JS_GetPropertyStr(realm, global.get(), "$262");
}

JSValue Run::evaluate_script(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  const Utf8View source(context, count > 0 ? arguments[0] : JS_UNDEFINED);
  if (!source) return JS_EXCEPTION;
  const std::string text(*source);
  return JS_Eval(context, text.c_str(), text.size(), "evalScript", JS_EVAL_TYPE_GLOBAL);
}

JSValue Run::detach(JSContext* context, JSValueConst, int count, JSValueConst* arguments) {
  if (count > 0) JS_DetachArrayBuffer(context, arguments[0]);
  return JS_NULL;
}

JSValue Run::collect(JSContext* context, JSValueConst, int, JSValueConst*) {
  JS_RunGC(JS_GetRuntime(context));
  return JS_UNDEFINED;
}

/// The suite's modules name each other by paths relative to their own.
char* Run::normalize(JSContext* context, const char* base, const char* name, void*) {
  const std::string_view from(base), wanted(name);
  std::vector<std::string_view> parts;
  if (wanted.starts_with('.')) {
    parts = split(from.substr(0, std::min(from.rfind('/'), from.size())), '/');
    if (from.find('/') == from.npos) parts.clear();
  }
  for (const std::string_view part : split(wanted, '/')) {
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (part != ".") {
      parts.push_back(part);
    }
  }
  std::string path;
  for (const std::string_view part : parts) path.append(path.empty() ? "" : "/").append(part);
  return js_strdup(context, path.c_str());
}

JSModuleDef* Run::load(JSContext* context, const char* name, void* archive, JSValueConst) {
  const auto source = static_cast<const Archive*>(archive)->find(name);
  if (!source) {
    JS_ThrowReferenceError(context, "there is no module %s", name);
    return nullptr;
  }
  // A byte 0 follows each content in the archive, as JS_Eval needs it.
  const JSValue compiled = JS_Eval(context, source->data(), source->size(), name, JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(compiled)) return nullptr;
  auto* const module = static_cast<JSModuleDef*>(JS_VALUE_GET_PTR(compiled));
  JS_FreeValue(context, compiled);  // the context's list of modules keeps it
  return module;
}

/// False: an exception is pending.
bool Run::evaluate(JSContext* context, std::string_view path, bool strict) {
  const auto source = archive_.find(path);
  require(source.has_value(), "test262: a file of the list is not in the archive");
  std::string with_directive;
  if (strict) with_directive = "\"use strict\";\n" + std::string(*source);
  const std::string_view text = strict ? std::string_view(with_directive) : *source;
  const std::string name(path);
  const JSValue compiled = JS_Eval(context, text.data(), text.size(), name.c_str(), JS_EVAL_TYPE_GLOBAL | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(compiled)) return false;
  if (step_ == Step::parse) step_ = Step::run;
  const Value result(context, JS_EvalFunction(context, compiled));
  return !JS_IsException(result.get());
}

bool Run::evaluate_test(JSContext* context) {
  step_ = Step::parse;
  if (test_.mode != Mode::module) return evaluate(context, test_.path, test_.mode == Mode::strict);
  const auto source = archive_.find(test_.path);
  require(source.has_value(), "test262: a test of the list is not in the archive");
  const std::string name(test_.path);
  const JSValue compiled = JS_Eval(context, source->data(), source->size(), name.c_str(), JS_EVAL_TYPE_MODULE | JS_EVAL_FLAG_COMPILE_ONLY);
  if (JS_IsException(compiled)) return false;
  // QuickJS links a module when it evaluates it, so errors of the phase `resolution` may come now.
  step_ = Step::run;
  promise_ = JS_EvalFunction(context, compiled);
  return !JS_IsException(promise_);
}

/// The name of the error's constructor, and the message.
std::string Run::error_of(JSContext* context, JSValueConst error, bool constructor_only) {
  const auto text_of = [context](JSValueConst value) {
    const Utf8View text(context, value);
    if (!text) JS_FreeValue(context, JS_GetException(context));
    return text ? std::string(*text) : std::string("?");
  };
  if (!JS_IsObject(error)) return text_of(error);
  const auto property = [context](JSValueConst object, const char* name) {
    const JSValue value = JS_GetPropertyStr(context, object, name);
    if (!JS_IsException(value)) return Value(context, value);
    JS_FreeValue(context, JS_GetException(context));
    return Value();
  };
  const Value constructor = property(error, "constructor");
  std::string name = JS_IsObject(constructor.get()) ? text_of(property(constructor.get(), "name").get()) : "?";
  if (constructor_only) return name;
  return name + ": " + text_of(property(error, "message").get());
}

std::string Run::play() {
  const Engine::Turn turn = engine_.begin_turn();
  JS_SetModuleLoaderFunc2(engine_.runtime(), &normalize, &load, nullptr, const_cast<Archive*>(&archive_));
  JSContext* const context = add_realm();
  if (context == nullptr) {
    ended_by_limit_ = true;
    engine_.end_turn(turn, Engine::Outcome::out_of_memory);
    return "no memory for a realm";
  }
  bool done = true;
  if (test_.mode != Mode::raw) {
    done = evaluate(context, "harness/assert.js", false) && evaluate(context, "harness/sta.js", false);
    if (done && test_.asynchronous) done = evaluate(context, "harness/doneprintHandle.js", false);
    for (const std::string_view include : test_.includes) {
      done = done && evaluate(context, "harness/" + std::string(include), false);
    }
  }
  done = done && evaluate_test(context);
  Value error(context, done ? JS_UNDEFINED : JS_GetException(context));
  // Microtasks run here. They may take the test to its end, so the error of the test's own code is kept beside.
  const Engine::Outcome outcome = engine_.end_turn(turn, Engine::Outcome::ok);
  if (JS_IsPromise(promise_) && JS_PromiseState(context, promise_) == JS_PROMISE_REJECTED) {
    done = false;
    error = Value(context, JS_PromiseResult(context, promise_));
  }
  if (JS_IsPromise(promise_)) JS_FreeValue(context, promise_);
  promise_ = JS_UNDEFINED;
  if (!done && JS_IsUncatchableError(error.get())) {
    ended_by_limit_ = true;
    return "ended by the watchdog";
  }
  if (!done) JS_Throw(context, error.release());
  return verdict(context, done, outcome);
}

std::string Run::verdict(JSContext* context, bool done, Engine::Outcome outcome) {
  const Value error(context, done ? JS_UNDEFINED : JS_GetException(context));
  if (outcome == Engine::Outcome::timeout || outcome == Engine::Outcome::out_of_memory) {
    ended_by_limit_ = true;
    return outcome == Engine::Outcome::timeout ? "ended by the watchdog" : "no memory";
  }
  if (!test_.error.empty()) {
    if (done) return "no error, in place of " + std::string(test_.error);
    if (step_ == Step::harness) return "harness: " + error_of(context, error.get(), false);
    if (test_.phase == "parse" && step_ != Step::parse) return "an error after the phase parse: " + error_of(context, error.get(), false);
    if (test_.phase == "runtime" && step_ != Step::run) return "an error in the phase parse: " + error_of(context, error.get(), false);
    const std::string name = error_of(context, error.get(), true);
    return name == test_.error ? "" : name + " in place of " + std::string(test_.error);
  }
  if (!done) return error_of(context, error.get(), false);
  if (!test_.asynchronous) return {};
  if (printed_ == "Test262:AsyncTestComplete\n") return {};
  return printed_.empty() ? "$DONE was not called" : printed_;
}

std::string printable(std::string_view text) {
  std::string shown(text.substr(0, reason_bytes_max));
  for (char& letter : shown) {
    if (letter < 32 || letter > 126) letter = letter == '\n' ? ' ' : '?';
  }
  while (shown.ends_with(' ')) shown.pop_back();
  return shown;
}

}  // namespace

Result<Runner> Runner::make(Archive archive, std::uint32_t watchdog_ms) {
  Runner runner(archive, watchdog_ms);
  const auto list = archive.find("list.txt");
  if (!list) return failure(ErrorCode::invalid, "the archive has no list of tests");
  for (const std::string_view line : split(*list, '\n')) {
    if (line.empty()) continue;
    const auto test = read_line(line);
    if (!test || !archive.find(test->path)) return failure(ErrorCode::invalid, "a line of the list of tests", runner.tests_.size() + 1);
    runner.tests_.push_back(*test);
  }
  return runner;
}

std::string Runner::run(std::size_t number) {
  require(number < tests_.size(), "test262: there is no such run", number);
  if (engine_ == nullptr || runs_ >= runs_per_engine) {
    engine_.reset();
    auto engine = Engine::make(
        {.memory_max_bytes = memory_max_bytes, .watchdog_ms = watchdog_ms_, .console = [](ConsoleLevel, std::string_view) {}}, {});
    if (!engine) return "262 " + std::to_string(number) + " fail no engine";
    engine_ = std::move(*engine);
    runs_ = 0;
    JS_SetHostPromiseRejectionTracker(engine_->runtime(), nullptr, nullptr);
  }
  std::string reason;
  bool ended_by_limit = false;
  {
    Run run(*engine_, archive_, tests_[number]);
    reason = run.play();
    ended_by_limit = run.ended_by_limit();
  }
  if (++runs_ % runs_per_collection == 0) engine_->collect();
  if (ended_by_limit) engine_.reset();
  return "262 " + std::to_string(number) + (reason.empty() ? std::string(" pass") : " fail " + printable(reason));
}

}  // namespace neap::webserver::test262
