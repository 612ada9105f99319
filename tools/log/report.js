// SPDX-License-Identifier: BSL-1.0
// Draws a run: unpacks the records that the page carries, and thins them for the visible span of time.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const markColour = "#d6008f";
const timePlots = ["bytes", "descriptors", "interval", "power", "energy", "asleep", "residency"];
const drawn = new Set();
let range = [0, data.seconds];

const pointsEach = Math.max(150, Math.min(1500, Math.floor(12000 / Math.max(1, data.cores.length))));

function colour(index) {
  const first = ["#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#17becf", "#7f7f7f", "#bcbd22"];
  return index < first.length ? first[index] : `hsl(${(index * 137.5) % 360}, 60%, 45%)`;
}

async function unpack(packed) {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const values = new Uint32Array(packed.count);
  for (let plane = 0; plane < packed.width; plane++) {
    const at = plane * packed.count;
    for (let i = 0; i < packed.count; i++) values[i] += planes[at + i] * 2 ** (8 * plane);
  }
  return values;
}

async function unpackCore(core) {
  const deltas = await unpack(core.time);
  core.seconds = new Float64Array(deltas.length);
  let units = 0;
  for (let i = 0; i < deltas.length; i++) {
    units += deltas[i];
    core.seconds[i] = units * core.time_unit;
  }
  for (const name of Object.keys(core.max)) core.max[name] = await unpack(core.max[name]);
  for (const name of Object.keys(core.min || {})) core.min[name] = await unpack(core.min[name]);
  core.min = core.min || core.max;
}

// Returns the first index whose time is not before `seconds`.
function indexAt(times, seconds) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < seconds) low = middle + 1; else high = middle;
  }
  return low;
}

// Returns at most 2 * pointsEach points of the times [from, to]: the minimum and maximum of each group of records, by time.
function thin(core, name, unit, from, to) {
  const times = core.seconds, minimum = core.min[name], maximum = core.max[name];
  const begin = Math.max(0, indexAt(times, from) - 1), end = Math.min(times.length, indexAt(times, to) + 1);
  const stretch = Math.max(1, Math.ceil((end - begin) / pointsEach));
  const x = [], y = [];
  const known = (value) => (name === "interval" && value === 0 ? null : value * unit);
  for (let i = begin; i < end; i += stretch) {
    const stop = Math.min(end, i + stretch);
    let low = i, high = i;
    for (let j = i + 1; j < stop; j++) {
      if (minimum[j] < minimum[low]) low = j;
      if (maximum[j] > maximum[high]) high = j;
    }
    if (low === high && minimum === maximum) {
      x.push(times[low]); y.push(known(maximum[low]));
    } else if (low <= high) {
      x.push(times[low], times[high]); y.push(known(minimum[low]), known(maximum[high]));
    } else {
      x.push(times[high], times[low]); y.push(known(maximum[high]), known(minimum[low]));
    }
  }
  return { x, y, single: stretch === 1 && core.step === 1 };
}

function recordTraces(name) {
  return data.cores.map((core, index) => {
    const found = thin(core, name, name === "interval" ? core.interval_unit : 1, range[0], range[1]);
    return {
      x: found.x, y: found.y, name: `core ${core.core}`, type: "scatter", mode: found.single ? "lines+markers" : "lines",
      line: { color: colour(index), width: 1 }, marker: { color: colour(index), size: 4 }, connectgaps: false,
    };
  });
}

function lineTraces(rows) {
  return rows.filter((row) => row.series && row.series.x.length).map((row) => ({
    x: row.series.x, y: row.series.y, name: row.name, type: "scatter", mode: "lines",
    line: { color: row.colour, width: 1.3, dash: row.dash || "solid", shape: row.shape || "linear" },
  }));
}

function marks() {
  return data.marks.map((mark) => ({
    type: "line", xref: "x", yref: "paper", x0: mark.x, x1: mark.x, y0: 0, y1: 1, line: { color: markColour, width: 1, dash: "dash" },
  }));
}

function markTexts() {
  if (data.marks.length > 40) return [];
  return data.marks.map((mark) => ({
    x: mark.x, y: 1, xref: "x", yref: "paper", text: mark.text.replace(/</g, "&lt;"), showarrow: false, textangle: -30, xanchor: "left",
    yanchor: "bottom", font: { size: 10, color: markColour },
  }));
}

function layout(yTitle, more) {
  return Object.assign({
    height: 300, margin: { l: 70, r: 20, t: data.marks.length ? 60 : 20, b: 40 }, showlegend: true, hovermode: "closest",
    xaxis: { title: { text: "seconds" }, range: range.slice() },
    yaxis: Object.assign({ title: { text: yTitle }, rangemode: "tozero" }, more),
    shapes: marks(), annotations: markTexts(),
  });
}

// Plotly's buttons that send a plot to a server are off.
const config = { responsive: true, displaylogo: false, scrollZoom: false, showSendToCloud: false, plotlyServerURL: "" };

function none(id, why) {
  const place = document.getElementById(id);
  place.className = "none";
  place.textContent = why;
}

async function drawOver(id, traces, plan, why) {
  if (!traces.length) return none(id, why);
  await Plotly.newPlot(id, traces, plan, config);
  drawn.add(id);
  if (timePlots.includes(id)) document.getElementById(id).on("plotly_relayout", (change) => moved(id, change));
}

function fieldOf(id) {
  return id === "interval" ? "interval" : document.getElementById(`${id}-of`).value;
}

async function redrawRecords(id) {
  const place = document.getElementById(id);
  const axis = Object.assign({}, place.layout.xaxis, { range: range.slice(), autorange: false });
  await Plotly.react(id, recordTraces(fieldOf(id)), Object.assign({}, place.layout, { xaxis: axis }));
}

let following = false;
async function moved(id, change) {
  if (following) return;
  const from = change["xaxis.range[0]"], to = change["xaxis.range[1]"];
  if (change["xaxis.autorange"]) range = [0, data.seconds];
  else if (from !== undefined && to !== undefined) range = [Number(from), Number(to)];
  else return;
  await lookAt();
}

async function lookAt() {
  following = true;
  for (const id of timePlots.filter((name) => drawn.has(name))) {
    if (["bytes", "descriptors", "interval"].includes(id)) await redrawRecords(id);
    else await Plotly.relayout(id, { "xaxis.range": range.slice() });
  }
  following = false;
  history.replaceState(null, "", `#${range[0]},${range[1]}`);
}

// The address report.html#1.5,1.6 opens the page at the time from 1.5 s to 1.6 s.
function readHash() {
  const parts = location.hash.slice(1).split(",").map(Number);
  if (parts.length === 2 && parts.every(Number.isFinite) && parts[0] < parts[1]) range = parts;
}

async function draw() {
  for (const core of data.cores) await unpackCore(core);
  readHash();
  const noRecords = "No record in this run.";
  const records = (name) => (data.cores.some((core) => core.records) ? recordTraces(name) : []);
  await drawOver("bytes", records("rx_bytes"), layout("bytes"), noRecords);
  await drawOver("descriptors", records("rx_descriptors"), layout("descriptors"), noRecords);
  await drawOver("interval", records("interval"), layout("microseconds", { type: "log", rangemode: "normal" }), noRecords);
  const histogram = data.histogram.filter((row) => row.x.length).map((row, index) => ({
    x: row.x, y: row.y, name: `core ${row.core}`, type: "scatter", mode: "lines", line: { color: colour(index), width: 1.5, shape: "hvh" },
  }));
  await drawOver("histogram", histogram, {
    height: 300, margin: { l: 70, r: 20, t: 20, b: 40 }, showlegend: true,
    xaxis: { title: { text: "microseconds" }, type: "log" }, yaxis: { title: { text: "records" }, rangemode: "tozero" },
  }, noRecords);

  const energyOf = (series) => series && { x: series.x, y: series.joules };
  const powerOf = (series) => series && { x: series.x.slice(1), y: series.watts };
  const byPackage = (of, name, dash) => data.packages.map((row, index) => ({
    name: `package ${row.number}${name === "memory" ? " memory" : ""}`, series: of(row[name]), colour: colour(index), dash,
    shape: of === powerOf ? "vh" : "linear",
  }));
  const noEnergy = "This CPU has no energy counter.";
  const bothOf = (of) => lineTraces([...byPackage(of, "package"), ...byPackage(of, "memory", "dot")]);
  await drawOver("power", bothOf(powerOf), layout("watts"), noEnergy);
  await drawOver("energy", bothOf(energyOf), layout("joules"), noEnergy);

  const byCore = (name, of, dash) => data.cores.map((core, index) => ({
    name: `core ${core.core}${name}`, series: of(core), colour: colour(index), dash,
  }));
  const share = { range: [0, 1.02] };
  const sleep = [...byCore(" asleep", (core) => core.asleep), ...byCore(" not idle", (core) => core.non_idle, "dot")];
  await drawOver("asleep", lineTraces(sleep), layout("share", share), noRecords);
  const states = [["c3", "dot"], ["c6", "dash"], ["c7", "solid"]];
  const residencies = states.flatMap(([state, dash]) => byCore(` ${state}`, (core) => core.residency[state], dash));
  const packageStates = [["c2", "dot"], ["c3", "dashdot"], ["c6", "dash"], ["c7", "longdash"]];
  for (const [state, dash] of packageStates) {
    data.packages.forEach((row, index) => residencies.push({
      name: `package ${row.number} ${state}`, series: row.residency[state], colour: colour(index + data.cores.length), dash,
    }));
  }
  await drawOver("residency", lineTraces(residencies), layout("share", share), "This CPU has no residency counters.");

  const names = [...new Set(data.cores.flatMap((core) => Object.keys(core.idle_by_state)))];
  const bars = names.map((name, index) => ({
    type: "bar", name: name === "poll" ? "polling in vain" : `asleep, ${name} asked for`, x: data.cores.map((core) => `core ${core.core}`),
    y: data.cores.map((core) => core.idle_by_state[name] || 0), marker: { color: colour(index + 2) },
  }));
  bars.push({
    type: "bar", name: "at work", x: data.cores.map((core) => `core ${core.core}`), marker: { color: "#dddddd" },
    y: data.cores.map((core) => Math.max(0, 1 - Object.values(core.idle_by_state).reduce((sum, value) => sum + value, 0))),
  });
  await drawOver("shares", bars, {
    height: 300, margin: { l: 70, r: 20, t: 20, b: 40 }, barmode: "stack", showlegend: true,
    yaxis: { title: { text: "share of time" }, range: [0, 1.02] },
  }, noRecords);

  for (const id of ["bytes", "descriptors"]) {
    document.getElementById(`${id}-of`).addEventListener("change", () => drawn.has(id) && redrawRecords(id));
  }
  document.getElementById("state").remove();
  document.documentElement.dataset.drawn = [...drawn].join(" ");
}

draw().catch((error) => {
  document.getElementById("state").textContent = `This page could not be drawn: ${error}. It needs a browser of 2023 or newer.`;
  document.documentElement.dataset.error = String(error);
});
