// SPDX-License-Identifier: BSL-1.0
// What all pictures of a comparison share: the data, the reader's choices, and marks that mouse and keyboard can read. Arms differ by
// colour and by pattern, so a print without colours can be read, too.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const coreNumbers = [...new Set(page.workloads.map((each) => each.cores))].filter((each) => each).sort((a, b) => a - b);
const firstArm = page.arms.length ? page.arms[0].name : "";
const state = {
  figure: page.figures.length ? page.figures[0].name : "", cores: coreNumbers.length ? String(coreNumbers[0]) : "all", shown: "ratios",
  scale: "linear", bars_of_layers: "row",
};
const byId = (id) => document.getElementById(id);
const printWidth = 720; // pixels: A4 without its margins
let isPrinted = false;
const widthOf = (element) => (isPrinted ? printWidth : Math.max(320, element.clientWidth || 1100));

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const ratioText = (value) => (value === 1 ? "1" : value < 1000 ? value.toPrecision(3) : shortNumber(value));

function html(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

const arm = (number) => number % page.colours;

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

// Returns a short text of three digits, such as 28.9k, for a place beside a bar.
function shortNumber(value) {
  if (!Number.isFinite(value)) return "";
  const [unit, name] = [[1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([least]) => Math.abs(value) >= least) || [1, ""];
  const digits = Math.abs(value / (unit === 1e4 ? 1e3 : unit));
  const shown = digits >= 100 ? Math.round(digits) : Number(digits.toPrecision(3));
  return (value < 0 ? "-" : "") + shown.toLocaleString("en-US", { maximumFractionDigits: 6 }) + name;
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

const cellOf = (workload, each, figure) => ((page.cells[workload] || {})[each] || {})[figure] || null;
const isChosen = (cores) => state.cores === "all" || !cores || String(cores) === state.cores;
const chosenWorkloads = () => page.workloads.filter((each) => isChosen(each.cores));
// The number of cores is left out where all workloads have the same.
const labelOf = ({ name }) => (state.cores === "all" ? name : name.replace(/[.]cores_[0-9]+$/, ""));
const coresText = () => (state.cores === "all" ? "all numbers of cores" : `${state.cores} core${state.cores === "1" ? "" : "s"}`);
// A unit such as "a @" names what the workload counts: a request, a round trip.
const counted = (unit, what) => unit.replace("@", what || "unit");
const unitAlone = (unit) => unit.replace(/ ?a @$/, "");

// Returns workloads by what they count, in their order. Figures of different units have no common scale.
function byUnit(workloads) {
  const groups = new Map();
  for (const each of workloads) groups.set(each.unit || "", [...(groups.get(each.unit || "") || []), each]);
  return groups;
}
