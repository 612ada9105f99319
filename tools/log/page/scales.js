// SPDX-License-Identifier: BSL-1.0
// Scales, their ticks, numbers as text, and colours.
"use strict";

// A scale maps a value to a coordinate and back. "log0" is logarithmic and has a place for 0.
const scaleOf = {
  linear: { to: (value) => value, from: (at) => at },
  log: { to: (value) => (value > 0 ? Math.log10(value) : NaN), from: (at) => 10 ** at },
  log0: { to: (value) => Math.log10(1 + value), from: (at) => 10 ** at - 1 },
};

function coordinates(values, scale) {
  if (scale === "linear") return values;
  const made = new Float32Array(values.length), { to } = scaleOf[scale];
  for (let i = 0; i < made.length; i++) made[i] = to(values[i]);
  return made;
}

// Returns positions in values for about `wanted` ticks between the coordinates `low` and `high`.
function ticksOf(scale, low, high, wanted) {
  if (!(high > low)) return [scaleOf[scale].from(low)];
  if (scale !== "linear") {
    const first = scaleOf[scale].from(low), last = scaleOf[scale].from(high);
    const decades = high - low;
    const smallest = Math.floor(Math.log10(Math.max(first, scale === "log0" ? 1 : 1e-12)));
    const step = Math.max(1, Math.ceil(decades / Math.max(1, wanted)));
    for (const [each, digits] of [[step, decades < 1.5 || 3 * decades < wanted ? [1, 2, 5] : [1]], [1, [1]], [1, [1, 2, 5]]]) {
      const found = scale === "log0" && first <= 0 ? [0] : [];
      for (let decade = smallest; decade <= Math.log10(Math.max(last, 1e-12)) + 1e-9; decade += each) {
        for (const digit of digits) {
          const value = digit * 10 ** decade;
          if (value >= first * (1 - 1e-9) && value <= last * (1 + 1e-9)) found.push(value);
        }
      }
      if (found.length >= 2) return found;
    }
    // Less than a decade: evenly spaced values.
    return scaleTicks(first, last, wanted + 1);
  }
  return scaleTicks(low, high, wanted);
}

function scaleTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough * 0.7) || power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9 && found.length < 50; at++) found.push(at * step);
  return found;
}

const letters = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function number(value) {
  if (!Number.isFinite(value)) return "unknown";
  const size = Math.abs(value);
  if (size >= 10000) {
    const [factor, letter] = letters.find(([each]) => size >= each);
    return `${Number((value / factor).toPrecision(3))}${letter}`;
  }
  return size === 0 ? "0" : size < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

// Ticks of a short span need more digits than `number` gives.
function tickTexts(ticks) {
  const texts = ticks.map(number);
  if (new Set(texts).size === texts.length || ticks.length < 2) return texts;
  const digits = Math.min(9, Math.max(0, Math.ceil(-Math.log10(Math.abs(ticks[1] - ticks[0])))));
  return ticks.map((value) => value.toFixed(digits));
}

// ---- colours ----
// The ramps rise evenly in lightness, and the categories differ for readers who do not tell red from green (Okabe and Ito, 2008).

const ramps = {
  light: ["#9fdcb8", "#5cc0c0", "#3199c4", "#2b6fb0", "#2b4593", "#16205c"],
  dark: ["#2a4494", "#2c78b4", "#35a3c0", "#6cc9b0", "#bde9a8", "#fdffd0"],
};
const palettes = {
  light: ["#0072b2", "#e08a00", "#009e73", "#d55e00", "#b0579a", "#3aa5dc", "#8a8400", "#555555"],
  dark: ["#4ba9e0", "#f0b429", "#2fc79a", "#ff8a4c", "#e39cc9", "#8fd3ff", "#e8e052", "#bbbbbb"],
};
const themeQuery = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const dark = themeQuery.matches;
  return {
    paper: of("paper"), ink: of("ink"), dim: of("dim"), line: of("line"), panel: of("panel"), mark: of("mark"),
    runs: [0, 1, 2, 3, 4, 5].map((number) => of(`run${number}`)),
    ramp: rampOf(ramps[dark ? "dark" : "light"]), palette: palettes[dark ? "dark" : "light"],
  };
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

// Returns 256 colours as [red, green, blue].
function rampOf(stops) {
  const known = stops.map(channels);
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (known.length - 1), left = Math.min(known.length - 2, Math.floor(at)), part = at - left;
    return known[left].map((value, channel) => Math.round(value + part * (known[left + 1][channel] - value)));
  });
}

// Returns the colour of category number `at` of `total` categories.
function categoryColour(look, at, total) {
  if (total <= look.palette.length) return channels(look.palette[at]);
  const hue = (at * 360) / total, lightness = at % 2 ? 0.42 : 0.6;
  const part = (shift) => {
    const k = (shift + hue / 30) % 12;
    return Math.round(255 * (lightness - 0.65 * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [part(0), part(8), part(4)];
}

const css = ([red, green, blue]) => `rgb(${red}, ${green}, ${blue})`;
