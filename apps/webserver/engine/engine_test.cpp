// SPDX-License-Identifier: BSL-1.0
// A script that throws, loops, recurses or takes all memory ends its turn, not the engine.
#include "apps/webserver/engine/engine.hpp"

#include <gtest/gtest.h>

#include <string>

#include "apps/webserver/engine/test_engine.hpp"

namespace neap::webserver {
namespace {

using Outcome = Engine::Outcome;

EngineOptions short_watchdog() { return {.watchdog_ms = 50}; }

TEST(Engine, TicksRunBeforeMicrotasksAndBothBeforeTheTurnEnds) {
  TestEngine engine;
  EXPECT_EQ(engine.run(R"(
    Promise.resolve().then(() => { console.log('promise'); process.nextTick(() => console.log('tick of promise')); })
                     .then(() => console.log('second promise'));
    process.nextTick((a, b) => { console.log('tick', a, b); process.nextTick(() => console.log('tick of tick')); }, 1, 'two');
    queueMicrotask(() => console.log('microtask'));
    (async () => { await null; console.log('async'); })();
    console.log('script');)"),
            "script\ntick 1 two\ntick of tick\npromise\nmicrotask\nasync\nsecond promise\ntick of promise\n");
  EXPECT_EQ(engine->statistics().ticks, 3U);
}

TEST(Engine, AnUncaughtErrorIsReportedWithItsStackAndCounted) {
  TestEngine engine;
  engine.run("globalThis.fail = function fail() { throw new TypeError('no', { cause: new Error('deep') }); };");
  EXPECT_EQ(engine.call("fail"), Outcome::exception);
  const std::string lines = engine.lines();
  EXPECT_TRUE(lines.starts_with("Uncaught TypeError: no\n    at fail (/test.js:1:")) << lines;
  EXPECT_NE(lines.find("[cause]: Error: deep\n"), lines.npos) << lines;
  EXPECT_EQ(engine->statistics().exceptions, 1U);
  EXPECT_EQ(engine.run("console.log('later')"), "later\n");
}

TEST(Engine, AnErrorOfATickOrMicrotaskDoesNotStopTheOthers) {
  TestEngine engine;
  engine.run(R"(globalThis.go = () => {
    process.nextTick(() => { throw new Error('tick'); });
    process.nextTick(() => console.log('next tick'));
    queueMicrotask(() => { throw new Error('microtask'); });
    queueMicrotask(() => console.log('next microtask'));
  };)");
  EXPECT_EQ(engine.call("go"), Outcome::exception);
  const std::string lines = engine.lines();
  EXPECT_NE(lines.find("Uncaught Error: tick\n"), lines.npos) << lines;
  EXPECT_NE(lines.find("next tick\n"), lines.npos);
  EXPECT_NE(lines.find("Uncaught Error: microtask\n"), lines.npos);
  EXPECT_NE(lines.find("next microtask\n"), lines.npos);
}

TEST(Engine, ARejectionWithoutAHandlerIsReportedOnceAtTheEndOfTheTurn) {
  TestEngine engine;
  const std::string lines = engine.run(R"(
    Promise.reject(new Error('lost'));
    const late = Promise.reject(new Error('handled late'));
    process.nextTick(() => late.catch(() => {}));)");
  EXPECT_NE(lines.find("Unhandled rejection: Error: lost\n"), lines.npos) << lines;
  EXPECT_EQ(lines.find("handled late"), lines.npos);
  EXPECT_EQ(engine->statistics().unhandled_rejections, 1U);
}

TEST(Engine, AScriptsOwnHandlersGetTheErrors) {
  TestEngine engine;
  engine.run(R"(
    process.on('uncaughtException', (error, origin) => { console.log('handler', error.message, origin);
    if (error.message === 'bad') throw new Error('of handler'); });
    globalThis.go = () => { process.nextTick(() => { throw new Error('tick'); }); throw new Error('thrown'); };
    globalThis.bad = () => { throw new Error('bad'); };
    globalThis.reject = () => { process.on('unhandledRejection', (reason) => console.log('rejection', reason)); Promise.reject(5); };)");
  EXPECT_EQ(engine.call("go"), Outcome::exception);
  EXPECT_EQ(engine.lines(), "handler thrown uncaughtException\nhandler tick uncaughtException\n");
  EXPECT_EQ(engine.call("bad"), Outcome::exception);
  EXPECT_NE(engine.lines().find("Uncaught Error: of handler"), std::string::npos);
  EXPECT_EQ(engine.call("reject"), Outcome::ok);
  EXPECT_EQ(engine.lines(), "rejection 5\n");
}

TEST(Engine, TheWatchdogEndsAnEndlessLoopThatCatchesEverything) {
  TestEngine engine({}, "", short_watchdog());
  engine.run(R"(
    globalThis.spin = () => { for (;;) { try { for (;;); } catch { console.log('caught'); } finally { console.log('finally'); } } };
    globalThis.fine = () => console.log('fine');)");
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(engine.call("spin"), Outcome::timeout);
    const std::string lines = engine.lines();
    EXPECT_TRUE(lines.starts_with("The watchdog ended a turn: ")) << lines;
    EXPECT_EQ(lines.find("caught"), lines.npos);
    EXPECT_EQ(engine.call("fine"), Outcome::ok);
    EXPECT_EQ(engine.lines(), "fine\n");
  }
  EXPECT_EQ(engine->statistics().timeouts, 2U);
}

TEST(Engine, TheWatchdogEndsEndlessChainsOfJobs) {
  TestEngine engine({}, "", short_watchdog());
  engine.run(R"(
    globalThis.microtasks = () => { const again = () => { queueMicrotask(again); }; again(); };
    globalThis.ticks = () => { const again = () => { process.nextTick(again); }; again(); };
    globalThis.both = () => { const again = () => { process.nextTick(() => Promise.resolve().then(again)); }; again(); };
    globalThis.awaits = async () => { for (;;) await null; };
    globalThis.rejections = () => { const again = () => { Promise.reject(1); Promise.reject(2).catch(again); }; again(); };
    globalThis.fine = () => console.log('fine');)");
  for (const char* const name : {"microtasks", "ticks", "both", "awaits", "rejections"}) {
    EXPECT_EQ(engine.call(name), Outcome::timeout) << name;
    engine.lines();
    EXPECT_EQ(engine.call("fine"), Outcome::ok);
    EXPECT_EQ(engine.lines(), "fine\n") << name;
  }
  EXPECT_GE(engine->statistics().jobs_dropped, 4U);
}

TEST(Engine, TheWatchdogEndsLoopsWithinNativeFunctions) {
  TestEngine engine({}, "", short_watchdog());
  engine.run(R"(
    globalThis.search = () => Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1);
    globalThis.reverse = () => Array.prototype.reverse.call({ length: 2 ** 53 - 1 });
    globalThis.expression = () => /^(a+)+$/.test('a'.repeat(100) + 'b');
    globalThis.sort = () => [3, 2, 1].sort(() => { for (;;); });)");
  for (const char* const name : {"search", "reverse", "expression", "sort"}) EXPECT_EQ(engine.call(name), Outcome::timeout) << name;
}

TEST(Engine, ATimeoutOfACallWithinATurnEndsTheWholeTurn) {
  TestEngine engine({}, "", short_watchdog());
  engine->add_binding("inner", [](Engine& of, JSValueConst target) {
    const auto call = [](JSContext* context, JSValueConst, int, JSValueConst* arguments) -> JSValue {
      Engine::of(context).call(arguments[0], JS_UNDEFINED, {});
      return JS_UNDEFINED;
    };
    return JS_SetPropertyStr(of.context(), target, "call", JS_NewCFunction(of.context(), call, "call", 1)) >= 0;
  });
  const Value binding(engine->context(), JS_NewCFunction(engine->context(), &Engine::internal_binding, "internalBinding", 1));
  const Value global(engine->context(), JS_GetGlobalObject(engine->context()));
  JS_SetPropertyStr(engine->context(), global.get(), "internalBinding", JS_DupValue(engine->context(), binding.get()));
  engine.run("globalThis.go = () => { for (;;) internalBinding('inner').call(() => { for (;;); }); };");
  EXPECT_EQ(engine.call("go"), Outcome::timeout);
}

TEST(Engine, MemoryIsBoundedAndComesBack) {
  TestEngine engine({}, "", {.memory_max_bytes = 16 << 20});
  engine.run(R"(
    globalThis.text = () => { let text = 'x'; for (;;) text += text; };
    globalThis.objects = () => { const list = []; for (;;) list.push({ list }); };
    globalThis.buffers = () => { const list = []; for (;;) list.push(new Uint8Array(1 << 20)); };
    globalThis.ticks = () => { for (;;) process.nextTick(() => {}, 1, 2, 3); };
    globalThis.awaits = async () => { const list = []; const more = async () => { await null; list.push(more(), more()); }; await more(); };
    globalThis.fine = () => console.log('fine');)");
  for (const char* const name : {"text", "objects", "buffers", "ticks"}) {
    const Outcome outcome = engine.call(name);
    // A long text meets the maximum length of a string first.
    EXPECT_TRUE(outcome == Outcome::out_of_memory || (outcome == Outcome::exception && std::string(name) == "text")) << name;
    engine.lines();
    EXPECT_EQ(engine.call("fine"), Outcome::ok);
    EXPECT_EQ(engine.lines(), "fine\n") << name;
  }
  EXPECT_NE(engine.call("awaits"), Outcome::ok);
  engine.lines();
  EXPECT_EQ(engine.call("fine"), Outcome::ok);
  EXPECT_EQ(engine.lines(), "fine\n");
  engine->collect();
  EXPECT_LT(engine->statistics().memory_bytes, 4U << 20);
}

TEST(Engine, CyclesDoNotFillTheMemoryOfABusyCore) {
  TestEngine engine({}, "", {.memory_max_bytes = 16 << 20, .watchdog_ms = 60'000});
  EXPECT_EQ(engine.run(R"(
    for (let count = 0; count < 200000; count++) { const cycle = { text: 'x'.repeat(100) + count }; cycle.self = cycle; }
    console.log('done');)"),
            "done\n");
  EXPECT_GT(engine->statistics().collections_busy, 0U);
}

TEST(Engine, RecursionEndsInAnError) {
  TestEngine engine;
  EXPECT_EQ(engine.run(R"(
    function down() { return down() + 1; }
    try { down(); } catch (error) { console.log(error.name); }
    const nested = '['.repeat(100000);
    try { JSON.parse(nested); } catch (error) { console.log(error instanceof Error); }
    const async = async () => { await async(); };
    async().catch((error) => console.log(error.name));)"),
            "RangeError\ntrue\nRangeError\n");
}

TEST(Engine, AnIdleCoreCollectsOnlyAfterGrowth) {
  TestEngine engine({}, "", {.collection_step_bytes = 64 << 10});
  engine->collect();
  EXPECT_FALSE(engine->collect_if_worthwhile());
  engine.run("for (let count = 0; count < 2000; count++) { const cycle = {}; cycle.self = cycle; }");
  const std::uint64_t before = engine->statistics().memory_bytes;
  EXPECT_TRUE(engine->collect_if_worthwhile());
  EXPECT_LT(engine->statistics().memory_bytes, before - (64 << 10));
  EXPECT_FALSE(engine->collect_if_worthwhile());
}

TEST(Engine, TheConsoleIsBounded) {
  TestEngine engine({}, "", {.console_bytes_per_s = 100});
  const std::string lines = engine.run("for (let count = 0; count < 1000; count++) console.log('0123456789');");
  EXPECT_LE(lines.size(), 900U);
  EXPECT_GT(engine->statistics().console_bytes_dropped, 8000U);
  EXPECT_EQ(engine->statistics().console_bytes, lines.size());
}

TEST(Engine, StringsAreReadAndMadeInPlace) {
  TestEngine engine;
  JSContext* const context = engine->context();
  const Value ascii(context, new_utf8(context, "abc")), latin1(context, new_latin1(context, "\xE9")), wide(context, new_utf8(context, "€"));
  EXPECT_EQ(latin1_view(context, ascii.get()), "abc");
  EXPECT_EQ(latin1_view(context, latin1.get()), "\xE9");
  EXPECT_EQ(latin1_view(context, wide.get()), std::nullopt);
  EXPECT_EQ(*Utf8View(context, latin1.get()), "é");
  EXPECT_EQ(*Utf8View(context, wide.get()), "€");
  // A rope: flattened in place, whether or not others refer to it.
  engine.run("globalThis.rope = () => { let text = ''; for (let i = 0; i < 3000; i++) text += 'abcdefgh' + i; return text; };");
  const Value global(context, JS_GetGlobalObject(context)), function(context, JS_GetPropertyStr(context, global.get(), "rope"));
  engine->call_with(function.get(), JS_UNDEFINED, {}, [context](JSValueConst text) {
    const auto view = latin1_view(context, text);
    ASSERT_TRUE(view);
    EXPECT_TRUE(view->starts_with("abcdefgh0abcdefgh1"));
    EXPECT_TRUE(view->ends_with("abcdefgh2999"));
  });
}

}  // namespace
}  // namespace neap::webserver
