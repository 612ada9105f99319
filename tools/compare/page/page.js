// SPDX-License-Identifier: BSL-1.0
// The pictures of a comparison: bars of one figure by workload and arm, and the instructions of each arm by layer. Arms differ by colour
// and by pattern, so a print without colours can be read, too.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const coreNumbers = [...new Set(page.workloads.map((each) => each.cores))].filter((each) => each).sort((a, b) => a - b);
const state = {
  figure: page.figures.length ? page.figures[0].name : "", cores: coreNumbers.length ? String(coreNumbers[0]) : "all", shown: "values",
  scale: "linear",
};
const byId = (id) => document.getElementById(id);
const margin = { left: 66, right: 12, top: 14, bottom: 40 };
const size = { width: 1100, height: 340 };
const barRoom = 0.78; // of a workload's width; the rest is space between workloads
const layerRowHeight = 22, layerGroupGap = 26, layerLabels = 190;
const workloadsInRow = 8;
const intervalShareMax = 1.8; // of the largest mean

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const arm = (number) => number % page.colours;
const layerColours = ["#16205c", "#d55e00", "#3199c4", "#f0b429", "#009e73", "#b0579a", "#9fdcb8", "#777777", "#8a4b08", "#bcd9f5"];

// Patterns of the arms: none, then lines and dots of the paper's colour over the arm's colour.
function patterns() {
  const marks = [
    [], [svg("path", { d: "M-2 2 L2 -2 M0 8 L8 0 M6 10 L10 6", "stroke-width": 1.6 })], [svg("circle", { cx: 4, cy: 4, r: 1.7 })],
    [svg("path", { d: "M0 4 L8 4", "stroke-width": 1.6 })], [svg("path", { d: "M4 0 L4 8", "stroke-width": 1.6 })],
    [svg("path", { d: "M0 0 L8 8 M8 0 L0 8", "stroke-width": 1.1 })],
  ];
  return page.arms.map((_, number) => svg("pattern", { id: `arm${number}`, width: 8, height: 8, patternUnits: "userSpaceOnUse" },
    svg("rect", { width: 8, height: 8, style: `fill:var(--run${arm(number)})` }),
    svg("g", { style: "stroke:var(--paper);fill:var(--paper)" }, ...marks[number % marks.length])));
}

function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "not known";
  const shown = Math.abs(value) >= 1000 ? Math.round(value) : Number(value.toPrecision(4));
  return shown.toLocaleString("en-US", { maximumFractionDigits: 6 });
}

const cellOf = (workload, each, figure) => ((page.cells[workload] || {})[each] || {})[figure] || null;

// Returns mean, low and high as the picture shows them; null if the value or the first arm's value is not known.
function valueOf(workload, number, figure) {
  const cell = cellOf(workload, page.arms[number].name, figure);
  if (!cell || cell.mean === null) return null;
  if (state.shown === "values") return cell;
  const first = cellOf(workload, page.arms[0].name, figure);
  if (!first || !first.mean) return null;
  const part = (value) => (value === null ? null : value / first.mean);
  return { mean: part(cell.mean), low: part(cell.low), high: part(cell.high) };
}

function ticks(low, high, isLog) {
  if (isLog) {
    const found = [];
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), step = Math.max(1, Math.ceil((last - first) / 6));
    for (let decade = first; decade <= last; decade += step) found.push(10 ** decade);
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / 5 || 1));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => (high - low) / each <= 6) || power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9) && found.length < 30; at++) found.push(at * step);
  return found;
}

// Returns the bounds of the axis. With two rounds an interval may be many times as long as the bars, so it does not widen the axis without
// bound: what is outside is cut off.
function spanOf(found) {
  const means = found.map((value) => value.mean), most = intervalShareMax * Math.max(0, ...means);
  const ends = found.flatMap((value) => [value.low, value.high]).filter((value) => value !== null && value >= 0);
  const all = [...means, ...ends.map((value) => Math.min(value, most))], positive = all.filter((value) => value > 0);
  if (state.scale === "log" && positive.length) {
    return [10 ** Math.floor(Math.log10(Math.min(...positive) * 0.9)), Math.max(...positive) * 1.2];
  }
  const high = Math.max(0, ...all);
  return [Math.min(0, ...all), high > 0 ? high * 1.08 : 1];
}

// Makes the marks of a picture readable by mouse and by keyboard: one stop of the Tab key, then arrow keys.
function readable(marks, readout) {
  marks.forEach(({ element, text }, at) => {
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", text);
    element.setAttribute("tabindex", at ? -1 : 0);
    element.append(svg("title", {}, text));
    const show = () => { readout.textContent = text; };
    element.addEventListener("mouseenter", show);
    element.addEventListener("focus", show);
    element.addEventListener("click", () => element.focus());
    element.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? marks.length - 1 : at + step;
      if (!(to >= 0 && to < marks.length)) return;
      event.preventDefault();
      element.setAttribute("tabindex", -1);
      marks[to].element.setAttribute("tabindex", 0);
      marks[to].element.focus();
    });
  });
}

function wordsOf(title, wide) {
  const letters = Math.max(3, Math.floor(wide / 6.6));
  return title.length > letters ? `${title.slice(0, letters - 1)}\u2026` : title;
}

function rangeText(cell) {
  return cell.low === null || cell.high === null ? "" : `, 95 % interval ${number(cell.low)} to ${number(cell.high)}`;
}

const chosenWorkloads = () => page.workloads.filter((each) => state.cores === "all" || String(each.cores) === state.cores);
// The number of cores is left out where all workloads have the same.
const labelOf = ({ name }) => (state.cores === "all" ? name : name.replace(/[.]cores_[0-9]+$/, ""));
// A unit such as "a @" names what the workload counts: a request, a round trip.
const counted = (unit, what) => unit.replace("@", what || "unit");
const unitOf = (figure, workload) => (state.shown === "ratios" ? `times ${page.arms[0].name}` : counted(figure.unit, workload.unit));

function paintBars() {
  const figure = page.figures.find((each) => each.name === state.figure), readout = byId("bars-readout");
  if (!figure) { byId("bars").textContent = "No figure was measured."; return; }
  const workloads = chosenWorkloads(), pictures = [], marks = [];
  const found = new Map(workloads.map((workload) => [workload, page.arms.map((_, at) => valueOf(workload.name, at, figure.name))]));
  const there = [...found.values()].flat().filter((value) => value), [low, high] = spanOf(there);
  const isLog = state.scale === "log" && there.some((value) => value.mean > 0);
  for (let at = 0; at < workloads.length; at += workloadsInRow) {
    pictures.push(rowOfBars(figure, workloads.slice(at, at + workloadsInRow), found, { low, high, isLog }, marks));
  }
  byId("bars").replaceChildren(...pictures);
  const unit = counted(figure.unit, "unit of the workload");
  const better = { low: "; less is better", high: "; more is better" }[figure.better] || "";
  readout.textContent = `${figure.title}${unit ? ` (${unit})` : ""}${better}`;
  readable(marks, readout);
}

// Returns a picture of some workloads, and appends its bars to `marks`. All rows have the same scale.
function rowOfBars(figure, workloads, found, { low, high, isLog }, marks) {
  const wide = size.width - margin.left - margin.right, tall = size.height - margin.top - margin.bottom;
  const place = (value) => (isLog ? Math.log10(Math.max(value, low) / low) / Math.log10(high / low) : (value - low) / (high - low));
  const yOf = (value) => margin.top + (1 - place(value)) * tall, zero = yOf(isLog ? low : 0);
  const line = (y) => svg("line", { class: "axis", x1: margin.left, x2: size.width - margin.right, y1: y, y2: y });
  const picture = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, "aria-label": figure.title });
  for (const value of ticks(low, high, isLog)) {
    const label = svg("text", { class: "dim", x: margin.left - 6, y: yOf(value) + 4, "text-anchor": "end" }, number(value));
    picture.append(line(yOf(value)), label);
  }
  // Fewer workloads than a full row have bars of the same width, unless all fit into one row.
  const group = Math.min(wide / Math.max(1, workloads.length), found.size > workloadsInRow ? wide / workloadsInRow : wide / 2);
  const each = (group * barRoom) / page.arms.length, bottom = size.height - margin.bottom;
  workloads.forEach((workload, at) => {
    const left = margin.left + at * group, unit = unitOf(figure, workload);
    const label = svg("text", { x: left + group / 2, y: bottom + 17, "text-anchor": "middle" }, wordsOf(labelOf(workload), group));
    label.append(svg("title", {}, workload.about || workload.name));
    picture.append(label);
    found.get(workload).forEach((value, armAt) => {
      const x = left + (group * (1 - barRoom)) / 2 + armAt * each, middle = x + (each - 2) / 2;
      const said = value ? `${number(value.mean)} ${unit}`.trim() : "not known";
      const text = `${workload.name}, ${page.arms[armAt].name}: ${figure.title} ${said}`;
      const mark = svg("g", {});
      if (value) {
        const top = yOf(Math.max(value.mean, low)), y = Math.min(top, zero), height = Math.max(0.5, Math.abs(zero - top));
        mark.append(svg("rect", { class: "column", x, width: Math.max(1, each - 2), y, height, fill: `url(#arm${armAt})` }));
        if (value.low !== null && value.high !== null && value.high > value.low) {
          const half = Math.min(7, each / 4), cut = (end) => Math.min(high, Math.max(low, end));
          // An end outside of the axis has no cap.
          const caps = [value.low, value.high].filter((end) => end === cut(end)).map((end) => `M${middle - half} ${yOf(end)}h${2 * half}`);
          mark.append(svg("path", { class: "error", d: `M${middle} ${yOf(cut(value.low))}V${yOf(cut(value.high))}${caps.join("")}` }));
        }
      } else mark.append(svg("text", { class: "dim", x: middle, y: bottom - 4, "text-anchor": "middle" }, "?"));
      picture.append(mark);
      marks.push({ element: mark, text: text + (value ? rangeText(value) : "") });
    });
  });
  picture.append(line(zero));
  return picture;
}

const layerOf = (workload, each, layer) => {
  const cell = cellOf(workload, each, `instructions: ${layer}`);
  return cell && cell.mean > 0 ? cell.mean : 0;
};

function paintLayers() {
  const rows = chosenWorkloads().flatMap((workload) => page.arms.map((each) => ({
    workload, each, parts: page.layers.map((layer) => layerOf(workload.name, each.name, layer)),
  }))).filter((row) => row.parts.some((part) => part > 0));
  byId("layers-part").hidden = !rows.length;
  if (!rows.length) return;
  const colour = (at) => layerColours[at % layerColours.length];
  byId("layers-legend").replaceChildren(...page.layers.map((layer, at) => {
    const entry = document.createElement("span"), key = document.createElement("span");
    key.className = "key";
    key.style.background = colour(at);
    entry.append(key, layer);
    return entry;
  }));
  const sum = (parts) => parts.reduce((a, b) => a + b, 0), most = Math.max(...rows.map((row) => sum(row.parts)));
  const wide = size.width - layerLabels - 90, marks = [], picture = svg("svg", { "aria-label": "instructions by layer" });
  let y = 4, last = null;
  for (const { workload, each, parts } of rows) {
    if (workload !== last) {
      y += last ? layerGroupGap - 16 : 0;
      const title = `${workload.name}${workload.unit ? `, for each ${workload.unit}` : ""}`;
      picture.append(svg("text", { x: 0, y: y + 13, "font-weight": 600 }, title));
      y += 20;
      last = workload;
    }
    const label = wordsOf(each.name, layerLabels - 12);
    picture.append(svg("text", { class: "dim", x: layerLabels - 8, y: y + 14, "text-anchor": "end" }, label));
    let x = layerLabels;
    parts.forEach((part, at) => {
      if (!part) return;
      const width = (part / most) * wide, height = layerRowHeight - 4;
      const mark = svg("g", {}, svg("rect", { class: "column", x, y, width, height, fill: colour(at) }));
      if (width > 6.8 * page.layers[at].length + 6) {
        const isDark = ["#16205c", "#8a4b08", "#777777", "#b0579a", "#009e73", "#d55e00"].includes(colour(at));
        mark.append(svg("text", { x: x + 4, y: y + 13, style: `fill:${isDark ? "#fff" : "#000"}` }, page.layers[at]));
      }
      picture.append(mark);
      const share = number((100 * part) / sum(parts));
      marks.push({ element: mark, text: `${workload.name}, ${each.name}, ${page.layers[at]}: ${number(part)} instructions, ${share} %` });
      x += width;
    });
    picture.append(svg("text", { x: x + 6, y: y + 14 }, number(sum(parts))));
    y += layerRowHeight;
  }
  picture.setAttribute("viewBox", `0 0 ${size.width} ${y + 6}`);
  byId("layers").replaceChildren(picture);
  readable(marks, byId("layers-readout"));
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const id of Object.keys(state)) if (given.has(id)) state[id] = given.get(id);
  const optionOf = ({ name, title, unit }) => new Option(unit ? `${title} (${counted(unit)})` : title, name);
  byId("figure").append(...page.figures.map(optionOf));
  byId("cores").append(...coreNumbers.map((each) => new Option(`${each}`, `${each}`)), new Option("all", "all"));
  for (const id of Object.keys(state)) {
    if (![...byId(id).options].some((each) => each.value === state[id])) state[id] = byId(id).value;
    byId(id).value = state[id];
    byId(id).addEventListener("change", () => { choose(id, byId(id).value); });
  }
  // One picture holds the patterns of all others. It has no size, because patterns of a hidden picture are not drawn.
  const hidden = { width: 0, height: 0, style: "position:absolute;width:0;height:0", "aria-hidden": true };
  document.body.append(svg("svg", hidden, svg("defs", {}, ...patterns())));
  document.querySelectorAll("svg.key").forEach((key, at) => {
    key.replaceChildren(svg("rect", { class: "column", width: 38, height: 14, fill: `url(#arm${at})` }));
  });
  paintBars();
  paintLayers();
  document.documentElement.dataset.drawn = "yes";
}

function choose(id, value) {
  state[id] = value;
  byId(id).value = value;
  paintBars();
  paintLayers();
  const made = new URLSearchParams(state);
  try { history.replaceState(null, "", `#${made}`); } catch { /* Some browsers refuse this for local files. */ }
}

try { begin(); } catch (error) { document.documentElement.dataset.error = String(error && error.stack ? error.stack : error); throw error; }
