// SPDX-License-Identifier: BSL-1.0
// What an axis or the colour can show. A point of a plot is a log record, or a stretch between two samples of the counters: a stretch if
// one of the chosen quantities comes from the counters. Quantities of records then are sums or means over the stretch.
"use strict";

const microjoules = 1e6;
const categories = { kind: "kinds", idle_state: "idle_states" };

function mapped(values, make) {
  const made = new Float32Array(values.length);
  for (let i = 0; i < made.length; i++) made[i] = make(i);
  return made;
}

// A growth is stored plus 1; 0 means unknown.
function grown(values, factor, divisor) {
  return mapped(values, (i) => (values[i] === 0 ? NaN : ((values[i] - 1) * factor) / (divisor ? divisor(i) : 1)));
}

async function timesOf(core, isStretch) {
  const before = zeroOf(page.runs[core.run]);
  if (!isStretch) return sumsOf(await column(core, "time"), core.seconds_a_unit, before);
  return core.stretches ? sumsOf(await column(core, "s_time"), core.seconds_a_unit, before) : new Float64Array(0);
}

async function intervalsOf(core) {
  const us = core.seconds_a_unit * 1e6, stored = await column(core, "interval");
  if (stored) return mapped(stored, (i) => (stored[i] ? stored[i] * us : NaN));
  const deltas = await column(core, "time");
  const made = mapped(deltas, (i) => deltas[i] * us);
  if (made.length) made[0] = core.start === null ? NaN : (deltas[0] - core.start) * us;
  for (const at of core.unknown_intervals) made[at] = NaN;
  return made;
}

async function meanIntervals(core) {
  const ticks = await column(core, "s_ticks"), records = await column(core, "s_records");
  return mapped(ticks, (i) => (records[i] ? (ticks[i] * 1e6) / page.runs[core.run].tsc_hz / records[i] : NaN));
}

async function asleepShares(core, isStretch) {
  const run = page.runs[core.run];
  if (isStretch) {
    const slept = await column(core, "s_idle_ticks"), ticks = await column(core, "s_ticks");
    return mapped(ticks, (i) => (ticks[i] ? Math.min(1, slept[i] / ticks[i]) : NaN));
  }
  const [slept, states, us] = [await column(core, "idle_ticks"), await column(core, "idle_state"), await quantity.interval.record(core)];
  const poll = run.idle_states.indexOf("poll");
  const ticksInUs = run.tsc_hz / 1e6;
  return mapped(us, (i) => (states[i] === poll ? 0 : us[i] > 0 ? Math.min(1, slept[i] / (us[i] * ticksInUs)) : NaN));
}

// The mean time of a sleep, in us; unknown where the core did not sleep.
async function sleepsOf(core, isStretch) {
  const run = page.runs[core.run], prefix = isStretch ? "s_" : "", ticksInUs = run.tsc_hz / 1e6;
  const names = ["idle_ticks", "idle_entries", "idle_state"].map((name) => prefix + name);
  const [slept, sleeps, states] = await Promise.all(names.map((name) => column(core, name)));
  const poll = run.idle_states.indexOf("poll");
  return mapped(slept, (i) => (sleeps[i] && states[i] !== poll ? slept[i] / sleeps[i] / ticksInUs : NaN));
}

// The value of a setting in force: that of the last change up to the record's generation.
async function settingsOf(core, isStretch, name) {
  // Records of Linux have the present value of adaptive interrupt moderation.
  if (core.columns[name] && !isStretch) return column(core, name);
  const generations = await column(core, isStretch ? "s_generation" : "generation");
  const base = isStretch ? 0 : core.generation_base;
  const rows = core.settings.slice().sort((a, b) => a.generation - b.generation);
  const changes = rows.map((row) => row.generation);
  const values = rows.map((row) => (row[name] === null || row[name] === "" ? NaN : Number(row[name])));
  return mapped(generations, (i) => {
    const at = indexAt(changes, generations[i] + base + 1) - 1;
    return at < 0 ? NaN : values[at];
  });
}

function plain(name, label, unit) {
  return {
    label, unit, scale: "log0", columns: [name],
    record: (core) => column(core, name), stretch: (core) => column(core, `s_${name}`), overStretch: "sum",
  };
}

function setting(name, label, unit) {
  return {
    label: `${label} in force`, unit, scale: "linear", discrete: true, setting: name,
    record: (core) => settingsOf(core, false, name), stretch: (core) => settingsOf(core, true, name), overStretch: "at its end",
  };
}

// The systems of two runs may number their idle states differently, so the numbers are those of all runs' names in one list.
const namesOf = (name) => [...new Set(page.runs.flatMap((run) => run[categories[name]]))];

function category(name, label) {
  const names = namesOf(name);
  const numbered = async (core, stored) => {
    const own = page.runs[core.run][categories[name]], values = await column(core, stored);
    if (own.every((each, at) => names[at] === each)) return values;
    return mapped(values, (i) => (values[i] < own.length ? names.indexOf(own[values[i]]) : NaN));
  };
  return {
    label, unit: "", scale: "linear", discrete: true, names,
    record: (core) => numbered(core, name), stretch: (core) => numbered(core, `s_${name}`), overStretch: "at its end",
  };
}

// A quantity of the counters. `make` returns its values from columns in the order of `columns`: their names, or a function that returns the
// names for a core.
function sampled(label, unit, columns, make, scale = "log") {
  const namesFor = (core) => (typeof columns === "function" ? columns(core) : columns).map((name) => `s_${name}`);
  const stretch = async (core) => {
    const found = await Promise.all(namesFor(core).map((name) => column(core, name)));
    return found.includes(null) ? new Float32Array(core.stretches).fill(NaN) : make(core, ...found);
  };
  return { label, unit, scale, stretch, there: (core) => namesFor(core).every((name) => core.stretch_columns[name]) };
}

const known = (values, i) => (values[i] ? values[i] - 1 : NaN);
const share = (core, values, ticks) => grown(values, 1, (i) => ticks[i]);
const joules = (core, counts) => grown(counts, page.runs[core.run].energy_unit * microjoules);

const quantity = {
  time: { label: "time", unit: "s", scale: "linear", record: (core) => timesOf(core, false), stretch: (core) => timesOf(core, true) },
  interval: {
    label: "time since the record before", unit: "us", scale: "log",
    record: intervalsOf, stretch: meanIntervals, overStretch: "mean",
  },
  rx_frames: plain("rx_frames", "frames received", ""),
  rx_bytes: plain("rx_bytes", "bytes received", "B"),
  rx_descriptors: plain("rx_descriptors", "receive descriptors", ""),
  tx_frames: plain("tx_frames", "frames sent", ""),
  tx_bytes: plain("tx_bytes", "bytes sent", "B"),
  tx_descriptors: plain("tx_descriptors", "transmit descriptors", ""),
  idle_entries: plain("idle_entries", "sleeps, or checks without work", ""),
  asleep: {
    label: "share of time asleep", unit: "", scale: "linear",
    record: (core) => asleepShares(core, false), stretch: (core) => asleepShares(core, true), overStretch: "whole stretch",
  },
  sleep: {
    label: "mean time of a sleep", unit: "us", scale: "log",
    record: (core) => sleepsOf(core, false), stretch: (core) => sleepsOf(core, true), overStretch: "mean",
  },
  itr_us: setting("itr_us", "itr", "us"),
  poll_budget_us: setting("poll_budget_us", "poll_budget", "us"),
  pstate: setting("pstate", "pstate (raw request)", ""),
  idle_state: category("idle_state", "idle state asked for"),
  kind: category("kind", "kind of record"),
  generation: {
    label: "generation of the settings", unit: "", scale: "linear", discrete: true, overStretch: "at its end",
    record: async (core) => {
      const found = await column(core, "generation");
      return mapped(found, (i) => found[i] + core.generation_base);
    },
    stretch: (core) => column(core, "s_generation"),
  },
  core: {
    label: "core", unit: "", scale: "linear", discrete: true,
    record: async (core) => new Float32Array((await column(core, "time")).length).fill(core.core),
    stretch: async (core) => new Float32Array(core.stretches).fill(core.core),
  },
  interrupts: sampled("interrupts", "", ["interrupts"], (core, counts) => mapped(counts, (i) => counts[i]), "log0"),
  instructions: sampled("instructions", "", ["instructions"], (core, values) => grown(values, 1)),
  cycles: sampled("cycles", "", ["cycles"], (core, values) => grown(values, 1)),
  ipc: sampled("instructions per cycle", "", ["instructions", "cycles"],
    (core, done, cycles) => grown(done, 1, (i) => known(cycles, i)), "linear"),
  ins_interrupt: sampled("instructions per interrupt", "", ["instructions", "interrupts"],
    (core, done, interrupts) => grown(done, 1, (i) => interrupts[i] || NaN)),
  misses: sampled("last-level cache misses", "", ["llc_misses"], (core, values) => grown(values, 1), "log0"),
  mpki: sampled("misses per 1000 instructions", "", ["llc_misses", "instructions"],
    (core, misses, done) => grown(misses, 1000, (i) => known(done, i)), "linear"),
  frequency: sampled("frequency while awake", "GHz", ["cycles", "reference_cycles"],
    (core, cycles, reference) => grown(cycles, page.runs[core.run].tsc_hz / 1e9, (i) => known(reference, i) || NaN), "linear"),
  non_idle: sampled("share of time not idle", "", ["reference_cycles", "ticks"], share, "linear"),
  uj: sampled("energy of the package", "uJ", ["package_energy"], joules),
  watts: sampled("power of the package", "W", ["package_energy", "ticks"],
    (core, counts, ticks) => grown(counts, page.runs[core.run].energy_unit * page.runs[core.run].tsc_hz, (i) => ticks[i]), "linear"),
  uj_interrupt: sampled("package energy per interrupt", "uJ", ["package_energy", "package_interrupts"],
    (core, counts, interrupts) => grown(counts, page.runs[core.run].energy_unit * microjoules, (i) => interrupts[i] || NaN)),
  memory_uj: sampled("energy of the memory", "uJ", ["dram_energy"],
    (core, counts) => grown(counts, page.runs[core.run].dram_energy_unit * microjoules)),
};
for (const state of ["c3", "c6", "c7"]) {
  quantity[state] = sampled(`residency of the core in ${state}`, "", [`core_${state}`, "ticks"], share, "linear");
}
for (const state of ["c2", "c3", "c6", "c7"]) {
  quantity[`package_${state}`] = sampled(`residency of the package in ${state}`, "", [`package_${state}`, "ticks"], share, "linear");
}
if (isSeveral) {
  quantity.run = {
    label: "run", unit: "", scale: "linear", discrete: true, names: page.runs.map((run) => run.short),
    record: async (core) => new Float32Array((await column(core, "time")).length).fill(core.run),
    stretch: async (core) => new Float32Array(core.stretches).fill(core.run),
  };
}
// The events that `log_events=` chose. Two runs may have the same event in different counters, so the run says which counter it is in.
// The prefixes keep the names of events apart from the page's own.
for (const name of new Set(page.runs.flatMap((run) => run.events.map(([event]) => event)))) {
  const counter = (core) => String(new Map(page.runs[core.run].events).get(name));
  const counts = sampled(name, "", (core) => [counter(core)], (core, values) => grown(values, 1), "log0");
  const rates = sampled(`${name} per 1000 instructions`, "", (core) => [counter(core), "instructions"],
    (core, values, done) => grown(values, 1000, (i) => known(done, i) || NaN), "linear");
  quantity[`event:${name}`] = { ...counts, chosen: true };
  quantity[`rate:${name}`] = { ...rates, chosen: true };
}
// False for a quantity that no run has. Published data of other systems lacks some that Neap's own logs always have.
function isThere(name) {
  const of = quantity[name], figure = { asleep: "asleep_share", sleep: "asleep_share" }[name] || name;
  const isSet = (core) => core.columns[name] || core.settings.some((row) => row[of.setting] !== null && row[of.setting] !== "");
  if (of.setting && !allCores.some(isSet)) return false;
  if (page.runs.every((run) => run.unknown.includes(figure))) return false;
  return !of.there || allCores.some((core) => core.stretches && of.there(core));
}

function labelOf(name, isStretch) {
  const of = histograms[name] || quantity[name];
  const how = isStretch && of.overStretch ? `, ${of.overStretch}` : "";
  return `${of.label}${of.unit ? ` (${of.unit}${how})` : how}`;
}

// Returns the values of a quantity for each point of a core, as an array of numbers; NaN: unknown. The results for the plot's present
// choices are kept.
const kept = new Map();
function valuesOf(core, name, isStretch) {
  const key = `${core.id} ${name} ${isStretch}`, of = quantity[name];
  if (!kept.has(key)) kept.set(key, !isStretch ? of.record(core) : core.stretches ? of.stretch(core) : Promise.resolve([]));
  return kept.get(key);
}

function forgetAllBut(names, isStretch) {
  for (const key of kept.keys()) {
    const [, name, level] = key.split(" ");
    if (!names.includes(name) || level !== String(isStretch)) kept.delete(key);
  }
}
