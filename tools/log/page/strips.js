// SPDX-License-Identifier: BSL-1.0
// The curves below the points, all over the same time: latency, power, energy per interrupt, interrupts per second, and sleep by core.
"use strict";

const stripHeight = 92, emptyStripHeight = 26, stripGap = 24;
// Room for the texts of changes, in three rows.
const stripTop = page.runs.some((run) => run.marks.length) ? 58 : 20;

const noEnergy = "This CPU has no energy counter, or the run has fewer than two readings.";
const noSleep = "The files do not have the time asleep.";
const edgesOf = (run) => [...run.over_time.interrupts_per_second.keys(), run.over_time.interrupts_per_second.length]
  .map((at) => at * run.over_time.span);

// Returns the lines of a figure of the packages. `look`: members of each line.
function packageLines(run, name, lookOf, suffix = "") {
  return run.packages.filter((row) => row[name]).map((row, at) => ({
    run, x: row[name].x, y: row[name].y, name: `package ${row.number}${suffix}`, ...lookOf(at),
  }));
}

// Returns the strips of a group of runs: lines with their axis, a heat map, or the reason why there is nothing to draw.
const stripsOf = (group, look) => (isOver() ? stripsOfAll(group.runs, look) : stripsOfOne(group.runs[0], look));

function stripsOfOne(run, look) {
  const coloured = (dash) => (at) => ({ colour: look.palette[at % look.palette.length], dash });
  const power = [...packageLines(run, "watts", coloured([])), ...packageLines(run, "memory_watts", coloured([5, 3]), " memory")];
  const spans = run.latency.windows.flatMap((span) => latencyLines.map(({ name, width, colour }) => ({
    run, from: span.from, to: span.to, value: span[name], name, width, colour: look.palette[colour], dash: [],
  })));
  return [
    { title: "latency of requests (us)", scale: "log", spans, isOfOne: true, none: run.latency.note },
    { title: "power (W)", lines: power, none: noEnergy },
    { title: "package energy per interrupt (uJ)", scale: "log", lines: packageLines(run, "uj", coloured([])), none: noEnergy },
    {
      title: "interrupts per second, all cores",
      lines: [{ run, x: edgesOf(run), y: run.over_time.interrupts_per_second, colour: look.palette[0], dash: [], name: "" }],
    },
    { title: "share of time asleep, by core", heat: run.over_time.asleep_percent, run },
  ];
}

// Strips with a line for each run. The packages of a run have the same look.
function stripsOfAll(runs, look) {
  const lookOf = (run) => ({ colour: runColour(look, run), dash: run.dash });
  const ofPackages = (name) => runs.flatMap((run) => packageLines(run, name, () => lookOf(run)));
  const latency = (name) => runs.flatMap((run) => run.latency.windows.map((span) => ({
    run, from: span.from, to: span.to, value: span[name], name: "", width: 2.4, ...lookOf(run),
  })));
  const numbers = [...new Set(runs.flatMap((run) => run.cores.map((core) => core.core)))];
  const one = numbers.find((each) => String(each) === state.cores);
  const asleep = runs.map((run) => {
    const rows = run.over_time.asleep_percent.filter((_, at) => one === undefined || run.cores[at].core === one);
    return { run, x: edgesOf(run), y: meanOf(rows), name: "", ...lookOf(run) };
  });
  const strip = (title, scale, lines) => ({ title, scale, lines, none: noEnergy });
  const memory = ofPackages("memory_watts");
  return [
    ...latencyLines.map(({ name, title }) => ({
      title: `latency of requests, ${title} (us)`, scale: "log", spans: latency(name),
      none: "No run has a result of a load beside its log.",
    })),
    strip("power of each package (W)", "linear", ofPackages("watts")),
    ...(memory.length ? [strip("power of the memory of each package (W)", "linear", memory)] : []),
    strip("package energy per interrupt (uJ)", "log", ofPackages("uj")),
    {
      title: "interrupts per second, all cores",
      lines: runs.map((run) => ({ run, x: edgesOf(run), y: run.over_time.interrupts_per_second, name: "", ...lookOf(run) })),
    },
    { title: `share of time asleep (%), ${one === undefined ? "mean of all cores" : `core ${one}`}`, lines: asleep, none: noSleep },
  ];
}

// Returns the mean of the rows' values at each place; null if no row has a value there.
function meanOf(rows) {
  return (rows[0] || []).map((_, at) => {
    const known = rows.map((row) => row[at]).filter((value) => value !== null);
    return known.length ? sumOf(known) / known.length : null;
  });
}

// Returns the least and greatest values of the same strip of all groups, so that groups have equal scales.
function stripBounds(all, number) {
  let low = Infinity, high = -Infinity;
  const isLog = all[0][number].scale === "log";
  const take = (value) => {
    if (value === null || !Number.isFinite(value)) return;
    if (value < low && (value > 0 || !isLog)) low = value;
    if (value > high) high = value;
  };
  for (const strips of all) {
    for (const line of strips[number].lines || []) line.y.forEach(take);
    for (const span of strips[number].spans || []) take(span.value);
  }
  if (!(high >= low)) return null;
  if (isLog) return high > low ? [low * 0.9, high * 1.1] : [low / 2, high * 2];
  return [Math.min(0, low), high > 0 ? high * 1.05 : 1];
}

function paintStrips(into, group, width, time, look) {
  const all = groupsNow().map((each) => stripsOf(each, look)), strips = all[groupsNow().findIndex(({ runs }) => runs[0] === group.runs[0])];
  const boundsOfStrips = strips.map((strip, number) => (strip.heat ? null : stripBounds(all, number)));
  const heights = strips.map((strip, number) => (strip.heat || boundsOfStrips[number] ? stripHeight : emptyStripHeight));
  const height = stripTop + heights.reduce((sum, each) => sum + each + stripGap, 0) + 22;
  const context = prepared(into.strips, width, height);
  context.clearRect(0, 0, width, height);
  const left = margin.left, wide = width - margin.left - margin.right;
  const xOf = (run, seconds) => left + ((seconds - zeroOf(run) - time[0]) / (time[1] - time[0] || 1)) * wide;
  let top = stripTop;
  into.strip = [];
  strips.forEach((strip, number) => {
    const place = { left, top, width: wide, height: heights[number], isFirst: !strip.heat, isLast: number === strips.length - 1 };
    into.strip.push({ ...strip, top, height: place.height });
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
    if (strip.heat) paintHeat(context, strip.heat, strip.run, xOf, place, look);
    const yOf = (value) => place.top + (1 - (scaleOf[scale].to(value) - axes.y[0]) / (axes.y[1] - axes.y[0])) * place.height;
    for (const line of bounds ? strip.lines || [] : []) paintLine(context, line, xOf, yOf);
    for (const span of bounds ? strip.spans || [] : []) paintSpan(context, span, xOf, yOf);
    for (const run of group.runs) paintMarks(context, place, run, axes, look);
    context.restore();
    paintFrame(context, place, look, strip.title, keysOf(strip, group, look));
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
  paintMarkTexts(context, group, xOf, left, wide, look);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = look.ink;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText("time (s)", left + wide / 2, height - 1);
}

function keysOf(strip, group, look) {
  if (isOver()) return group.runs.map((run) => ({ text: run.short, colour: runColour(look, run) }));
  if (strip.spans) return strip.spans.length ? latencyLines.map(({ text, colour }) => ({ text, colour: look.palette[colour] })) : [];
  if (strip.heat) {
    const { cores } = strip.run;
    return [{ text: `pale to strong: 0 to 100 %${cores.length > 1 ? `, core ${cores[0].core} on top` : ""}` }];
  }
  const named = (strip.lines || []).filter(({ name }) => name);
  return named.map(({ name, dash, colour }) => ({ text: name + (dash.length ? " (dashed)" : ""), colour }));
}

function paintLine(context, line, xOf, yOf) {
  context.strokeStyle = line.colour;
  context.lineWidth = 1.6;
  context.setLineDash(line.dash);
  context.beginPath();
  let isDown = false;
  // `y[i]` belongs to the span from x[i] to x[i + 1].
  line.y.forEach((value, at) => {
    if (value === null || !(value >= 0)) { isDown = false; return; }
    const y = yOf(value);
    if (Number.isNaN(y)) { isDown = false; return; }
    const from = xOf(line.run, line.x[at]);
    if (isDown) context.lineTo(from, y); else context.moveTo(from, y);
    context.lineTo(xOf(line.run, line.x[at + 1]), y);
    isDown = true;
  });
  context.stroke();
  context.setLineDash([]);
}

// Returns the values of a strip's curves at a time, for the line below the strips.
function stripText(strip, time) {
  const said = [];
  for (const line of strip.lines || []) {
    const own = time + zeroOf(line.run), at = indexAt(line.x, own) - (line.x.includes(own) ? 0 : 1);
    const value = at >= 0 && at < line.y.length ? line.y[at] : null;
    if (value !== null) said.push(`${[isOver() ? line.run.short : "", line.name].filter(Boolean).join(" ")} ${number(value)}`);
  }
  for (const span of strip.spans || []) {
    const own = time + zeroOf(span.run);
    if (span.from <= own && own < span.to) said.push(`${isOver() ? span.run.short : span.name} ${number(span.value)}`);
  }
  if (strip.heat) {
    const at = Math.floor((time + zeroOf(strip.run)) / strip.run.over_time.span);
    const rows = strip.heat.map((row, core) => [strip.run.cores[core].core, row[at]]).filter(([, value]) => Number.isFinite(value));
    said.push(...rows.map(([core, value]) => `core ${core} ${value} %`));
  }
  return `${number(time)} s   ${strip.title}   ${said.join("   ") || "unknown"}`;
}

const latencyLines = [
  { name: "p50", title: "p50", text: "p50 (thick)", width: 3.2, colour: 0 },
  { name: "p99", title: "p99", text: "p99", width: 2, colour: 3 },
  { name: "max", title: "maximum", text: "maximum (thin)", width: 1, colour: 7 },
];

function paintSpan(context, { run, from, to, value, width, colour, dash }, xOf, yOf) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(xOf(run, from), yOf(value));
  context.lineTo(xOf(run, to), yOf(value));
  context.stroke();
  context.setLineDash([]);
}

function paintHeat(context, rows, run, xOf, place, look) {
  const tall = place.height / rows.length, span = run.over_time.span;
  rows.forEach((row, number) => row.forEach((percent, at) => {
    if (percent === null) return;
    context.fillStyle = percent === 0 ? look.panel : css(look.ramp[shade(percent / 100)]);
    const from = xOf(run, at * span), wide = xOf(run, (at + 1) * span) - from + 0.6;
    context.fillRect(from, place.top + number * tall, wide, Math.max(1, tall - (rows.length < 33 ? 0.6 : 0)));
  }));
}

// Writes the changes of settings above the strips, in rows so that they do not overlap.
function paintMarkTexts(context, group, xOf, left, wide, look) {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  const ends = [-Infinity, -Infinity, -Infinity];
  const marks = group.runs.flatMap((run) => run.marks.map((mark) => ({ run, text: mark.text, at: xOf(run, mark.x) })));
  for (const run of group.runs) run.marksHidden = 0;
  for (const { run, text, at } of marks.sort((first, second) => first.at - second.at)) {
    if (at < left - 1 || at > left + wide + 1) continue;
    const width = context.measureText(text).width, from = Math.max(left, Math.min(at + 2, left + wide - width));
    const row = ends.findIndex((end) => end + 8 < from);
    if (row < 0 || width > wide) { run.marksHidden++; continue; }
    context.fillStyle = isOver() ? runColour(look, run) : look.mark;
    context.fillText(text, from, 40 - row * 12);
    ends[row] = from + width;
  }
}
