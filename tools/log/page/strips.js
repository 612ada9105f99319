// SPDX-License-Identifier: BSL-1.0
// The curves below the points, all over the same time: latency, power, energy per interrupt, interrupts per second, and sleep by core.
"use strict";

const stripHeight = 92, emptyStripHeight = 26, stripGap = 24;
// Room for the texts of changes, in three rows.
const stripTop = page.runs.some((run) => run.marks.length) ? 58 : 20;

// Returns the strips of a run: lines with their axis, a heat map, or the reason why there is nothing to draw.
function stripsOf(run) {
  const packageLines = (name, dash, suffix) => run.packages.filter((row) => row[name]).map((row, at) => ({
    x: row[name].x, y: row[name].y, colour: at, dash, name: `package ${row.number}${suffix}`,
  }));
  const noEnergy = "This CPU has no energy counter, or the run has fewer than two readings.";
  const rates = run.over_time.interrupts_per_second;
  return [
    { title: "latency of requests (us)", scale: "log", spans: run.latency.windows, none: run.latency.note },
    { title: "power (W)", lines: [...packageLines("watts", false, ""), ...packageLines("memory_watts", true, " memory")], none: noEnergy },
    { title: "package energy per interrupt (uJ)", scale: "log", lines: packageLines("uj", false, ""), none: noEnergy },
    {
      title: "interrupts per second, all cores",
      lines: [{ x: [...rates.keys(), rates.length].map((at) => at * run.over_time.span), y: rates, colour: 0, name: "" }],
    },
    { title: "share of time asleep, by core", heat: run.over_time.asleep_percent },
  ];
}

// Returns the least and greatest values of the same strip of all runs, so that runs have equal scales.
function stripBounds(number) {
  let low = Infinity, high = -Infinity;
  const take = (value) => {
    if (value === null || !Number.isFinite(value)) return;
    if (value < low && (value > 0 || page.strips[0][number].scale !== "log")) low = value;
    if (value > high) high = value;
  };
  for (const strips of page.strips) {
    for (const line of strips[number].lines || []) line.y.forEach(take);
    for (const span of strips[number].spans || []) [span.p50, span.p99, span.max].forEach(take);
  }
  if (!(high >= low)) return null;
  if (page.strips[0][number].scale === "log") return high > low ? [low * 0.9, high * 1.1] : [low / 2, high * 2];
  return [Math.min(0, low), high > 0 ? high * 1.05 : 1];
}

function paintStrips(run, canvas, width, time, look) {
  const strips = page.strips[page.runs.indexOf(run)];
  const boundsOfStrips = strips.map((strip, number) => (strip.heat ? null : stripBounds(number)));
  const heights = strips.map((strip, number) => (strip.heat || boundsOfStrips[number] ? stripHeight : emptyStripHeight));
  const height = stripTop + heights.reduce((sum, each) => sum + each + stripGap, 0) + 22;
  const context = prepared(canvas, width, height);
  context.clearRect(0, 0, width, height);
  const left = margin.left, wide = width - margin.left - margin.right;
  const xOf = (seconds) => left + ((seconds - time[0]) / (time[1] - time[0] || 1)) * wide;
  let top = stripTop;
  strips.forEach((strip, number) => {
    const place = { left, top, width: wide, height: heights[number], isFirst: !strip.heat, isLast: number === strips.length - 1 };
    const bounds = boundsOfStrips[number];
    const scale = strip.scale || "linear";
    const axes = { scaleX: "linear", scaleY: scale, x: time, y: bounds ? bounds.map(scaleOf[scale].to) : [0, 1] };
    context.fillStyle = look.panel;
    context.fillRect(left, place.top, wide, place.height);
    if (bounds) paintTicks(context, place, axes, look, false);
    context.save();
    context.beginPath();
    context.rect(left, place.top, wide, place.height);
    context.clip();
    if (strip.heat) paintHeat(context, strip.heat, run, xOf, place, look);
    const yOf = (value) => place.top + (1 - (scaleOf[scale].to(value) - axes.y[0]) / (axes.y[1] - axes.y[0])) * place.height;
    for (const line of bounds ? strip.lines || [] : []) paintLine(context, line, xOf, yOf, look);
    for (const span of bounds ? strip.spans || [] : []) paintSpan(context, span, xOf, yOf, look);
    paintMarks(context, place, run, axes, look);
    context.restore();
    paintFrame(context, place, look, strip.title, keysOf(strip, run, look));
    if (bounds || place.isLast) paintTicks(context, { ...place, isFirst: Boolean(bounds) }, axes, look, true);
    const hasData = strip.heat || (bounds && (strip.lines || strip.spans).length);
    if (!hasData) {
      context.font = "12px system-ui, sans-serif";
      context.fillStyle = look.dim;
      context.textAlign = "left";
      context.textBaseline = "middle";
      context.fillText(strip.none || "no data", left + 8, place.top + place.height / 2);
    }
    top += place.height + stripGap;
  });
  paintMarkTexts(context, run, xOf, left, wide, look);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = look.ink;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText("time (s)", left + wide / 2, height - 1);
  return height;
}

function keysOf(strip, run, look) {
  if (strip.spans) return strip.spans.length ? latencyLines.map(({ text, colour }) => ({ text, colour: look.palette[colour] })) : [];
  if (strip.heat) return [{ text: `pale to strong: 0 to 100 %${run.cores.length > 1 ? `, core ${run.cores[0].core} on top` : ""}` }];
  const colourOf = (line) => look.palette[line.colour % look.palette.length];
  const named = (strip.lines || []).filter((line) => line.name);
  return named.map((line) => ({ text: line.name + (line.dash ? " (dashed)" : ""), colour: colourOf(line) }));
}

function paintLine(context, line, xOf, yOf, look) {
  context.strokeStyle = look.palette[line.colour % look.palette.length];
  context.lineWidth = 1.6;
  context.setLineDash(line.dash ? [5, 3] : []);
  context.beginPath();
  let isDown = false;
  // `y[i]` belongs to the span from x[i] to x[i + 1].
  line.y.forEach((value, at) => {
    if (value === null || !(value >= 0)) { isDown = false; return; }
    const y = yOf(value);
    if (Number.isNaN(y)) { isDown = false; return; }
    if (isDown) context.lineTo(xOf(line.x[at]), y); else context.moveTo(xOf(line.x[at]), y);
    context.lineTo(xOf(line.x[at + 1]), y);
    isDown = true;
  });
  context.stroke();
  context.setLineDash([]);
}

const latencyLines = [
  { name: "p50", text: "p50 (thick)", width: 3.2, colour: 0 }, { name: "p99", text: "p99", width: 2, colour: 3 },
  { name: "max", text: "maximum (thin)", width: 1, colour: 7 },
];

function paintSpan(context, span, xOf, yOf, look) {
  latencyLines.forEach(({ name, width, colour }) => {
    context.strokeStyle = look.palette[colour];
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(xOf(span.from), yOf(span[name]));
    context.lineTo(xOf(span.to), yOf(span[name]));
    context.stroke();
  });
}

function paintHeat(context, rows, run, xOf, place, look) {
  const tall = place.height / rows.length, span = run.over_time.span;
  rows.forEach((row, number) => row.forEach((percent, at) => {
    if (percent === null) return;
    context.fillStyle = percent === 0 ? look.panel : css(look.ramp[shade(percent / 100)]);
    const from = xOf(at * span);
    context.fillRect(from, place.top + number * tall, xOf((at + 1) * span) - from + 0.6, Math.max(1, tall - (rows.length < 33 ? 0.6 : 0)));
  }));
}

// Writes the changes of settings above the strips, in rows so that they do not overlap.
function paintMarkTexts(context, run, xOf, left, wide, look) {
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = look.mark;
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  const ends = [-Infinity, -Infinity, -Infinity];
  let hidden = 0;
  for (const mark of run.marks) {
    const x = xOf(mark.x);
    if (x < left - 1 || x > left + wide + 1) continue;
    const width = context.measureText(mark.text).width, from = Math.max(left, Math.min(x + 2, left + wide - width));
    const row = ends.findIndex((end) => end + 8 < from);
    if (row < 0 || width > wide) { hidden++; continue; }
    context.fillText(mark.text, from, 40 - row * 12);
    ends[row] = from + width;
  }
  run.marksHidden = hidden;
}
