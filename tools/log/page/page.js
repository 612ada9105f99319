// SPDX-License-Identifier: BSL-1.0
// The page: choices, drawing, and zoom. The first picture is drawn from a small table before the browser has read the columns.
"use strict";

const places = []; // for each group of runs: its canvases and panels
let shown = null; // what the last drawing needs for the readout

const byId = (id) => document.getElementById(id);
const isStretch = () => [state.x, state.y, state.colour].some((name) => quantity[name] && !quantity[name].record);

function scaleFor(name) {
  if (histograms[name]) return "linear";
  const of = quantity[name];
  if (of.discrete || name === "time" || state.scales === "linear") return "linear";
  if (state.scales === "auto") return of.scale;
  return of.scale === "log" ? "log" : "log0";
}

// ---- bounds and colours ----

const boundsKept = new Map();
async function boundsOf(name, level) {
  if (name === "time") return wholeTime();
  if (name === "interval" && !level && page.interval_bounds) return page.interval_bounds;
  const key = `${name} ${level}`;
  if (!boundsKept.has(key)) {
    let low = Infinity, high = -Infinity, positive = Infinity;
    for (const core of allCores) {
      const values = await valuesOf(core, name, level);
      for (let i = 0; i < values.length; i++) {
        const value = values[i];
        if (value < low) low = value;
        if (value > high) high = value;
        if (value > 0 && value < positive) positive = value;
      }
    }
    boundsKept.set(key, { low, high, positive });
  }
  const { low, high, positive } = boundsKept.get(key);
  if (!(high >= low)) return [0, 1];
  const scale = scaleFor(name);
  if (scale === "log") return [positive === Infinity ? 1 : positive, Math.max(high, positive === Infinity ? 1 : positive)];
  if (scale === "log0") return [Math.max(0, Math.min(0, low)), high];
  if (quantity[name].discrete) return [low - 0.5, high + 0.5];
  return [low > 0.3 * high ? low : Math.min(0, low), high];
}

async function colouring(level, look) {
  if (state.colour === "density" || isHistogram()) return { kind: "density" };
  if (state.colour === "run") return colouringByRun(look);
  const of = quantity[state.colour];
  if (of.discrete) {
    const found = new Set();
    for (const core of allCores) {
      const values = await valuesOf(core, state.colour, level);
      let last = NaN;
      for (let i = 0; i < values.length && found.size <= categoriesMax; i++) {
        if (values[i] !== last && values[i] === values[i]) found.add(values[i]);
        last = values[i];
      }
    }
    if (found.size <= categoriesMax) {
      const values = [...found].sort((a, b) => a - b);
      const names = of.names || [];
      return {
        kind: "category", values, index: new Map(values.map((value, at) => [value, at])),
        colours: values.map((_, at) => categoryColour(look, at, values.length)),
        names: values.map((value) => names[value] || `${of === quantity.core ? "core " : ""}${number(value)} ${of.unit}`.trim()),
      };
    }
  }
  const scale = scaleFor(state.colour), bounds = await boundsOf(state.colour, level);
  return { kind: "mean", scale, bounds, low: scaleOf[scale].to(bounds[0]), high: scaleOf[scale].to(bounds[1]) };
}

// ---- points ----

const coordinatesKept = new Map();
async function coordinatesOf(core, name, level) {
  const scale = scaleFor(name), key = `${core.id} ${name} ${level} ${scale}`;
  if (!coordinatesKept.has(key)) coordinatesKept.set(key, coordinates(await valuesOf(core, name, level), scale));
  return coordinatesKept.get(key);
}

async function layerOf(core, level, colour) {
  const [time, x] = [await valuesOf(core, "time", level), await coordinatesOf(core, state.x, level)];
  const y = isHistogram() ? x : await coordinatesOf(core, state.y, level);
  let tint = null;
  if (colour.kind === "category") tint = await valuesOf(core, state.colour, level);
  if (colour.kind === "mean") tint = await coordinatesOf(core, state.colour, level);
  const [from, to] = state.time || [-Infinity, Infinity];
  return { core, x, y, tint, time, begin: indexAt(time, from), end: indexAt(time, to + 1e-12) };
}

async function axesNow(level) {
  const spanOf = async (name, chosen) => {
    const span = (chosen || (await boundsOf(name, level))).map(scaleOf[scaleFor(name)].to);
    // Points at the ends of an axis would be cut in half.
    const room = chosen || name === "time" || (name === "interval" && !level) ? 0 : 0.03 * (span[1] - span[0]);
    return span[1] > span[0] ? [span[0] - room, span[1] + room] : [span[0] - 0.5, span[1] + 0.5];
  };
  return {
    scaleX: scaleFor(state.x), scaleY: scaleFor(state.y),
    x: await spanOf(state.x, state.x === "time" ? state.time : state.view.x),
    y: isHistogram() ? [0, 1] : await spanOf(state.y, state.view.y),
  };
}

async function makePlan() {
  const look = theme(), level = isStretch();
  // The canvases may be others when the columns are unpacked.
  const groups = groupsNow().map((group, number) => ({ group, width: places[number].points.clientWidth }));
  forgetAllBut(["time", state.x, state.y, state.colour], level);
  for (const key of coordinatesKept.keys()) {
    const [, name, of] = key.split(" ");
    if (![state.x, state.y, state.colour].includes(name) || of !== String(level)) coordinatesKept.delete(key);
  }
  // All columns are unpacked at once, because inflating happens outside of this thread.
  const names = ["time", state.x, state.y, state.colour].filter((name) => quantity[name]);
  await Promise.all(allCores.flatMap((core) => names.map((name) => valuesOf(core, name, level))));
  const axes = await axesNow(level), colour = await colouring(level, look);
  const runs = [];
  for (const { group, width } of groups) {
    const panels = panelsOf(group);
    const { places: rectangles, height } = arrange(panels.length, width);
    for (const [at, panel] of panels.entries()) {
      const layers = await Promise.all(panel.cores.map((core) => layerOf(core, level, colour)));
      const place = rectangles[at], fine = window.devicePixelRatio > 1 ? 1 : 2;
      const columns = Math.max(1, Math.round(place.width / fine)), rows = Math.max(1, Math.round(place.height / fine));
      const bars = Math.max(1, Math.round(place.width / 3));
      panel.place = place;
      panel.layers = layers;
      panel.grid = isHistogram() ? histogramsOf(layers, axes, bars, group) : gridOf(layers, axes, columns, rows, colour);
    }
    runs.push({ group, panels, width, height });
  }
  return { look, level, axes, colour, runs, max: fullest(runs) };
}

const sumOf = (values) => values.reduce((a, b) => a + b, 0);
const gridsOf = (runs) => runs.flatMap(({ panels }) => panels.map(({ grid }) => grid));
const fullest = (runs) => gridsOf(runs).reduce((most, grid) => Math.max(most, grid.max), isHistogram() && state.y !== "count" ? 1e-9 : 1);

// The first picture: time and interval, from the table that the page's head holds.
function firstPlan() {
  const [columns, rows] = page.first_cells;
  const look = theme();
  const axes = { scaleX: "linear", scaleY: "log", x: wholeTime(), y: (page.interval_bounds || [1, 10]).map(Math.log10) };
  if (!(axes.y[1] > axes.y[0])) axes.y = [axes.y[0] - 0.5, axes.y[1] + 0.5];
  const runs = groupsNow().map((group, number) => {
    const panels = panelsOf(group), width = places[number].points.clientWidth;
    const { places: rectangles, height } = arrange(panels.length, width);
    panels.forEach((panel, at) => {
      const counts = new Uint32Array(columns * rows), of = page.runs.map(() => new Uint32Array(isSeveral ? columns * rows : 0));
      for (const core of panel.cores) {
        core.first.forEach((points, at) => {
          counts[at] += points;
          if (isSeveral) of[core.run][at] += points;
        });
      }
      panel.place = rectangles[at];
      panel.layers = [];
      const max = counts.reduce((a, b) => Math.max(a, b), 0);
      panel.grid = { columns, rows, counts, of: isSeveral ? of : null, inside: sumOf(counts), outside: 0, unknown: 0, max };
    });
    return { group, panels, width, height };
  });
  const colour = isSeveral ? colouringByRun(look) : { kind: "density" };
  return { look, level: false, axes, colour, runs, isFirst: true, max: fullest(runs) };
}

function paint(plan) {
  const { look, axes, colour, max } = plan;
  const texts = { x: labelOf(state.x, plan.level), y: labelOf(state.y, plan.level) };
  if (isHistogram()) axes.y = [0, max];
  plan.runs.forEach(({ group, panels, width, height }, number) => {
    const context = prepared(places[number].points, width, height);
    context.clearRect(0, 0, width, height);
    for (const { place, grid, layers, title } of panels) {
      context.fillStyle = look.panel;
      context.fillRect(place.left, place.top, place.width, place.height);
      paintTicks(context, place, axes, look, false);
      context.save();
      context.beginPath();
      context.rect(place.left - 2, place.top - 2, place.width + 4, place.height + 4);
      context.clip();
      if (grid.series) paintHistograms(context, place, grid, look, max);
      else if (!plan.isFirst && grid.inside <= pointsSingleMax) paintPoints(context, place, layers, axes, colour, look);
      else paintGrid(context, place, grid, colour, look, max);
      if (state.x === "time") for (const run of group.runs) paintMarks(context, place, run, axes, look);
      context.restore();
      paintFrame(context, place, look, title, [{ text: pointsText(grid.inside) }]);
      paintTicks(context, place, axes, look, true);
    }
    paintAxisTitles(context, width, height, texts, look);
    places[number].points.setAttribute("aria-label", `${group.name}: ${texts.y} over ${texts.x}, ${panels.length} panels`);
    paintStrips(places[number], group, width, state.time || wholeTime(), look);
  });
  paintLegend(plan);
  byId("notes").textContent = notesOf(plan).join(" ");
  shown = plan;
}

const whole = (value) => value.toLocaleString("en-US");
const pointsText = (value) => `${whole(value)} point${value === 1 ? "" : "s"}`;

function paintLegend({ colour, look, max, runs, level, isFirst }) {
  const legend = byId("legend");
  legend.replaceChildren();
  const add = (text, made) => {
    const entry = document.createElement("span");
    if (made) {
      const key = document.createElement("span");
      key.className = "key";
      key.style.background = css(made);
      entry.append(key);
    }
    entry.append(text);
    legend.append(entry);
    return entry;
  };
  if (isHistogram() && isOver()) {
    page.runs.forEach((run) => add(run.short, channels(runColour(look, run))));
    add(`each line: ${histograms[state.y].label} of a run; highest ${number(max)} ${histograms[state.y].unit}`);
    return;
  }
  if (isHistogram()) { add(`${histograms[state.y].label} in each span: highest ${number(max)} ${histograms[state.y].unit}`); return; }
  if (colour.kind === "category") {
    colour.names.forEach((name, at) => add(name, colour.colours[at]));
    if (colour.isRun && isOver()) add("cells with points of several runs have their colours in turn");
    return;
  }
  const isSingle = !isFirst && gridsOf(runs).every((grid) => grid.inside <= pointsSingleMax), isDensity = colour.kind === "density";
  if (isSingle && isDensity) { add("each dot is one point", look.ramp[150]); return; }
  const entry = add(isDensity ? "points in a cell: 1" : `mean of ${labelOf(state.colour, level)}: ${number(colour.bounds[0])}`);
  const bar = document.createElement("canvas");
  bar.width = 256;
  bar.height = 1;
  const context = bar.getContext("2d");
  look.ramp.forEach((made, at) => { context.fillStyle = css(made); context.fillRect(at, 0, 1, 1); });
  const end = isDensity ? whole(max) : number(colour.bounds[1]), isLog = isDensity || colour.scale !== "linear";
  entry.append(bar, `${end}${isLog ? " (logarithmic)" : ""}${isDensity ? "" : "; paler cells have fewer points"}`);
}

// Says what a point is, and what is binned, left out or outside the axes.
function notesOf({ runs, level, isFirst }) {
  const said = [level
    ? "A point is one stretch between two samples of a core's counters. Energy is the package's, for the interrupts of all of its cores."
    : "A point is one log record: an interrupt, or a check of the ring that found work. Its counts are since the record before, " +
      "and include control's own traffic."];
  const total = (of) => gridsOf(runs).reduce((sum, grid) => sum + grid[of], 0);
  if (zeroText()) said.push(zeroText());
  if (isFirst) said.push("First picture, from a table of counts; the points follow.");
  const zero = state.scales === "linear" ? "" : ", or 0 on a logarithmic axis";
  if (!isFirst && total("unknown")) said.push(`Not drawn, because a value is unknown${zero}: ${pointsText(total("unknown"))}.`);
  if (!isFirst && total("outside")) said.push(`Outside of the axes: ${pointsText(total("outside"))}.`);
  if (!isFirst && !isHistogram() && gridsOf(runs).some((grid) => grid.inside > pointsSingleMax)) {
    said.push(`In panels with more than ${whole(pointsSingleMax)} points, a cell stands for all points at its place.`);
  }
  for (const run of page.runs) {
    const who = page.runs.length > 1 ? `${run.name}: ` : "";
    const thinned = run.cores.filter((core) => core.step > 1);
    if (!level && thinned.length) {
      const records = whole(sumOf(run.cores.map((core) => core.records)));
      said.push(`${who}the log has ${records} records; the page holds one in ${thinned[0].step}, and each core's extremes (longest ` +
        "intervals, largest byte counts).");
    }
    const samples = Math.max(...run.cores.map((core) => core.samples_a_stretch));
    if (level && samples > 1) said.push(`${who}a stretch spans ${samples} samples.`);
    const lost = sumOf(run.cores.map((core) => core.across_gaps));
    if (level && lost) said.push(`${who}${lost} stretches across missing entries are left out.`);
    if (run.marksHidden) {
      said.push(`${who}${run.marksHidden} changes of settings have a line but no text, for lack of room; the table below has them all.`);
    }
  }
  return said;
}

// ---- drawing in order ----

let drawing = null, isStale = false;
function draw() {
  if (drawing) { isStale = true; return drawing; }
  drawing = (async () => {
    do {
      isStale = false;
      const plan = await makePlan();
      if (!isStale) paint(plan);
    } while (isStale);
    writeAddress();
    byId("state").textContent = "";
    document.documentElement.dataset.drawn = `${state.x} ${state.y} ${state.colour}`;
  })().catch(failed).finally(() => { drawing = null; });
  return drawing;
}

function failed(error) {
  byId("state").textContent = `This page could not be drawn: ${error}. It needs a browser of 2023 or newer.`;
  document.documentElement.dataset.error = String(error && error.stack ? error.stack : error);
}

function begin() {
  readAddress();
  fillChoices();
  makeRuns();
  const isUsual = Object.keys(usual).every((id) => state[id] === usual[id]) && !state.time && !state.view.y;
  if (isUsual) {
    for (const core of allCores) core.first = joined(core.first_about, core.first_text && bytesOf(core.first_text));
    paint(firstPlan());
    // The frame after the next one comes when this picture is on the screen.
    const root = document.documentElement.dataset;
    requestAnimationFrame(() => requestAnimationFrame(() => { root.firstPictureMs = performance.now().toFixed(1); }));
  }
  document.addEventListener("DOMContentLoaded", () => {
    // A frame passes first, so that the first picture does not wait for the points.
    const root = document.documentElement.dataset;
    setTimeout(() => draw().then(() => requestAnimationFrame(() => { root.pointsMs = performance.now().toFixed(1); })), 0);
  });
  themeQuery.addEventListener("change", () => draw());
  let last = document.body.clientWidth;
  addEventListener("resize", () => {
    if (document.body.clientWidth === last) return;
    last = document.body.clientWidth;
    draw();
  });
}

begin();
