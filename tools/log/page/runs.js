// SPDX-License-Identifier: BSL-1.0
// Several runs on one page: in the same pictures (overlaid), or side by side. Each run has a colour, a dash and a marker, as the legend
// says. Second 0 is the begin of each run, or of its measured window.
"use strict";

const isSeveral = page.runs.length > 1;
const usual = {
  x: "time", y: "interval", colour: isSeveral ? "run" : "density", scales: "auto", cores: "apart", layout: isSeveral ? "over" : "side",
  zero: page.zero,
};
const state = { ...usual, view: { x: null, y: null }, time: null };

page.runs.forEach((run, number) => { run.number = number; });

// Returns the second of a run that is second 0 of the page.
const zeroOf = (run) => (state.zero === "window" && run.window ? run.window[0] : 0);

// The last record may be a rounding error behind the end.
function wholeTime() {
  const low = Math.min(...page.runs.map((run) => -zeroOf(run)));
  return [low, Math.max(low + 1e-9, ...page.runs.map((run) => run.seconds * (1 + 1e-12) - zeroOf(run)))];
}

function zeroText() {
  if (state.zero !== "window") return isSeveral ? "Second 0 is the begin of each run." : "";
  const without = page.runs.filter((run) => !run.window).map((run) => run.short);
  const but = without.length ? `, and the begin of ${without.join(", ")}, whose window is not known` : "";
  return `Second 0 is the begin of ${isSeveral ? "each run's" : "the"} measured window${but}.`;
}

const isOver = () => state.layout === "over";

// Returns the groups of runs that have a picture together: all runs, or each run alone.
const groupsNow = () => (isOver() ? [{ name: "all runs", runs: page.runs }] : page.runs.map((run) => ({ name: run.name, runs: [run] })));

const coresOf = (group) => group.runs.flatMap((run) => run.cores);

// Returns the panels of a group: a title, and the cores whose points are in it.
function panelsOf(group) {
  const cores = coresOf(group), numbers = [...new Set(cores.map((core) => core.core))].sort((a, b) => a - b);
  if (state.cores === "together") return [{ title: numbers.length === 1 ? `core ${numbers[0]}` : `all ${numbers.length} cores`, cores }];
  return numbers.filter((each) => state.cores === "apart" || String(each) === state.cores)
    .map((each) => ({ title: `core ${each}`, cores: cores.filter((core) => core.core === each) }));
}

// ---- the look of a run ----

const markerSize = 2.3;
const markers = page.runs.map(({ marker }) => {
  const made = new Path2D();
  made.addPath(new Path2D(marker), new DOMMatrix([markerSize, 0, 0, markerSize, 0, 0]));
  return made;
});

const runColour = (look, run) => look.runs[run.number % look.runs.length];

function paintMarker(context, run, x, y) {
  context.translate(x, y);
  context.fill(markers[run.number]);
  context.translate(-x, -y);
}

// The colours of points by run, as `colouring` describes them.
function colouringByRun(look) {
  return {
    kind: "category", isRun: true, values: page.runs.map((run) => run.number), names: page.runs.map((run) => run.short),
    index: new Map(page.runs.map((run) => [run.number, run.number])), colours: page.runs.map((run) => channels(runColour(look, run))),
  };
}

// In a cell with points of several runs, neighbouring pixels have the colours of these runs in turn.
function runOfCell(grid, at) {
  const there = [];
  grid.of.forEach((counts, number) => { if (counts[at]) there.push(number); });
  return there[(Math.floor(at / grid.columns) + (at % grid.columns)) % there.length];
}

// ---- histograms by run ----

// Counts and cumulative counts are only comparable between runs as shares of each run's points.
const histograms = {
  count: { label: "how many", unit: "points" },
  share: { label: "share of the points", unit: "%" },
  cdf: { label: "share of the points up to here", unit: "%" },
};
const isHistogram = () => Object.hasOwn(histograms, state.y);

// Returns the heights of one histogram's spans for the present choice.
function heightsOf({ counts, below, total }) {
  if (state.y === "count" || !total) return Array.from(counts);
  if (state.y === "share") return Array.from(counts, (points) => (100 * points) / total);
  let sum = below;
  return Array.from(counts, (points) => { sum += points; return (100 * sum) / total; });
}

// Returns the histograms of a panel, in overlaid pictures one for each run.
function histogramsOf(layers, axes, columns, group) {
  const of = isOver() ? group.runs : [null];
  const series = of.map((run) => ({ run, ...histogramOf(layers.filter(({ core }) => !run || core.run === run.number), axes, columns) }));
  const total = (name) => series.reduce((sum, each) => sum + each[name], 0);
  series.forEach((each) => { each.bars = heightsOf(each); });
  const counts = new Uint32Array(columns);
  for (const each of series) each.counts.forEach((points, at) => { counts[at] += points; });
  const max = Math.max(0, ...series.flatMap((each) => each.bars));
  return { series, columns, rows: 1, counts, inside: total("inside"), outside: total("outside"), unknown: total("unknown"), max };
}

function paintHistograms(context, place, grid, look, max) {
  for (const each of grid.series) {
    if (!isOver() && state.y !== "cdf") paintBars(context, place, each, look, max);
    else paintSteps(context, place, each, each.run ? runColour(look, each.run) : css(look.ramp[150]), max);
  }
}

function paintSteps(context, place, { run, bars, columns, inside }, colour, max) {
  if (!inside) return;
  const yOf = (value) => place.top + place.height * (1 - (max ? value / max : 0)), wide = place.width / columns;
  context.strokeStyle = colour;
  context.lineWidth = 1.8;
  context.setLineDash(run ? run.dash : []);
  context.beginPath();
  bars.forEach((value, at) => {
    if (at) context.lineTo(place.left + at * wide, yOf(value)); else context.moveTo(place.left, yOf(value));
    context.lineTo(place.left + (at + 1) * wide, yOf(value));
  });
  context.stroke();
  context.setLineDash([]);
}
