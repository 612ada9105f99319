// SPDX-License-Identifier: BSL-1.0
// The timeline of one run: for each pixel column the number of interrupts by their distance, and least, mean and greatest of the interrupt
// rate, the time asleep and the power. The server computes them anew for each span, so every zoom shows single records in the end.
"use strict";

const timeline = { row: null, span: null, core: "", found: null, strips: [], abort: null };
const stripTall = { gap: 170, other: 92 }, stripSpace = 26;

async function openTimeline(row, seconds) {
  Object.assign(timeline, { row, span: null, core: "", found: null });
  byId("timeline-part").hidden = false;
  byId("core").replaceChildren(option("", "all cores"));
  await drawTimeline();
  if (timeline.found) byId("core").append(...timeline.found.about.cores.map((core) => option(String(core), `core ${core}`)));
  return seconds;
}

async function drawTimeline() {
  const canvas = byId("timeline"), width = canvas.clientWidth || 1100, columns = Math.max(1, Math.min(2000,
    Math.round(width - margin.left - margin.right)));
  if (timeline.abort) timeline.abort.abort();
  timeline.abort = new AbortController();
  byId("timeline-state").textContent = "reading\u2026";
  try {
    timeline.found = await askColumns("timeline", { row: timeline.row, columns, core: timeline.core, span: timeline.span
      && timeline.span.join(",") }, timeline.abort.signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    byId("timeline-state").textContent = error.message;
    return;
  }
  const height = timelineHeight();
  paintTimeline(prepared(canvas, width, height), width, height, theme());
  byId("timeline-state").textContent = `${number(timeline.found.about.records)} records in view`;
}

// Returns the strips of the answer: name, title, values, and the least top of the axis.
function stripsOf(about) {
  const of = about.cores.length > 1 && !timeline.core ? "a core" : `core ${timeline.core || about.cores[0]}`;
  return [
    { name: "gap", title: "time since the interrupt before (us); dark: many interrupts", unit: "us" },
    { name: "rate", title: `interrupts per second of ${of}`, colour: 0, least: 0 },
    ...(about.knows_sleep ? [{ name: "asleep", title: `time asleep of ${of} (%)`, colour: 2, least: 100 }] : []),
    ...about.packages.map((each, at) => ({ name: `watts${each}`, title: `power of package ${each} (W)`, colour: at + 3, least: 0 })),
  ];
}

const timelineHeight = () => margin.top + stripsOf(timeline.found.about).reduce((sum, { name }) => sum + (stripTall[name]
  || stripTall.other) + stripSpace, 0) + 26;

function paintTimeline(context, width, height, look) {
  const { about, columns } = timeline.found, left = margin.left, wide = width - margin.left - margin.right;
  context.clearRect(0, 0, width, height);
  let top = margin.top + 16;
  timeline.strips = stripsOf(about).map((strip, at, all) => {
    const place = { left, top, width: wide, height: stripTall[strip.name] || stripTall.other, isFirst: true,
      isLast: at === all.length - 1 };
    const axes = { scaleX: "linear", x: about.span, ...axisOfStrip(strip, about, columns) };
    context.fillStyle = look.panel;
    context.fillRect(place.left, place.top, place.width, place.height);
    paintTicks(context, place, axes, look, false);
    if (strip.name === "gap") paintGaps(context, place, about, columns, look); else paintEnvelope(context, place, axes, strip, columns,
      look);
    paintFrame(context, place, look, strip.title, []);
    paintTicks(context, place, axes, look, true);
    top += place.height + stripSpace;
    return { ...strip, place, axes };
  });
  context.fillStyle = look.ink;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText("time (s)", left + wide / 2, height - 1);
}

function axisOfStrip({ name, least }, about, columns) {
  if (name === "gap") return { scaleY: "log", y: about.gap_span.map((value) => Math.log10(1e6 * value)) };
  let high = least;
  for (const value of columns[`${name}_high`]) if (value > high) high = value;
  return { scaleY: "linear", y: [0, high * 1.04 || 1] };
}

function paintGaps(context, place, about, columns, look) {
  const picture = new ImageData(about.columns, about.rows);
  let most = 1;
  for (const count of columns.gap_n) if (count > most) most = count;
  columns.gap_cell.forEach((at, i) => {
    const to = 4 * ((about.rows - 1 - Math.floor(at / about.columns)) * about.columns + (at % about.columns));
    const colour = look.ramp[shade(most > 1 ? 0.15 + (0.85 * Math.log(columns.gap_n[i])) / Math.log(most) : 0.7)];
    picture.data.set([...colour, 255], to);
  });
  const canvas = document.createElement("canvas");
  canvas.width = about.columns;
  canvas.height = about.rows;
  canvas.getContext("2d").putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, place.left, place.top, place.width, place.height);
}

function paintEnvelope(context, place, axes, { name, colour }, columns, look) {
  const [low, mean, high] = ["low", "mean", "high"].map((end) => columns[`${name}_${end}`]), each = place.width / mean.length;
  const to = (value) => place.top + place.height * (1 - value / axes.y[1]);
  context.fillStyle = look.palette[colour % look.palette.length];
  for (const part of [0, 1]) {
    context.globalAlpha = part ? 1 : 0.28;
    context.beginPath();
    for (let at = 0; at < mean.length; at++) {
      if (mean[at] !== mean[at]) continue;
      const top = part ? to(mean[at]) - 0.8 : to(high[at]), bottom = part ? top + 1.6 : Math.max(to(low[at]), top + 0.8);
      context.rect(place.left + at * each, top, each, bottom - top);
    }
    context.fill();
  }
  context.globalAlpha = 1;
}

function lookAtSpan(span) {
  const { seconds } = timeline.found.about, from = Math.max(0, span[0]), to = Math.min(seconds, span[1]);
  if (!(to - from > 1e-9)) return null;
  timeline.span = from <= 0 && to >= seconds ? null : [from, to];
  return drawTimeline();
}

function readTimeline(strip, x) {
  if (!strip || !timeline.found) { byId("timeline-readout").textContent = ""; return; }
  const { about, columns } = timeline.found, at = Math.min(about.columns - 1,
    Math.floor(((x - strip.place.left) / strip.place.width) * about.columns));
  const time = atPart(about.span, (at + 0.5) / about.columns);
  const values = strip.name === "gap" ? "" : ["low", "mean", "high"].map((end,
    i) => `${["least", "mean", "greatest"][i]} ${number(columns[`${strip.name}_${end}`][at])}`).join("   ");
  byId("timeline-readout").textContent = `${time.toFixed(9)} s   ${strip.title}   ${values}`;
}

function timelineCsv() {
  const { about, columns } = timeline.found, strips = stripsOf(about).filter(({ name }) => name !== "gap");
  const head = ["time_s", ...strips.flatMap(({ name }) => ["least", "mean", "greatest"].map((end) => `${name}_${end}`))];
  const lines = Array.from({ length: about.columns }, (_, at) => [
    atPart(about.span, (at + 0.5) / about.columns), ...strips.flatMap(({ name }) => ["low", "mean",
      "high"].map((end) => columns[`${name}_${end}`][at])),
  ].join(","));
  return [head.join(","), ...lines, ""].join("\n");
}

function beginTimeline() {
  const whole = () => { timeline.span = null; return drawTimeline(); };
  watchCanvas(byId("timeline"), byId("timeline-frame"), {
    flat: true,
    panelAt: (x, y) => timeline.strips.find(({ place }) => x >= place.left - 4 && x <= place.left + place.width + 4 && y >= place.top - 14
      && y <= place.top + place.height),
    zoom: (across) => lookAtSpan(across.map((part) => atPart(timeline.found.about.span, part))),
    move: (across) => lookAtSpan([across, 1 + across].map((part) => atPart(timeline.found.about.span, part))),
    reset: whole, click: () => {}, hover: readTimeline,
  });
  byId("whole-run").addEventListener("click", whole);
  byId("core").addEventListener("change", () => { timeline.core = byId("core").value; drawTimeline(); });
  byId("timeline-choices").addEventListener("submit", (event) => event.preventDefault());
  byId("timeline-svg").addEventListener("click", () => {
    const width = byId("timeline").clientWidth, height = timelineHeight(), look = theme(), context = new SvgContext(width, height,
      look.paper);
    paintTimeline(context, width, height, look);
    saveAs("timeline.svg", context.text(), "image/svg+xml");
  });
  byId("timeline-csv").addEventListener("click", () => saveAs("timeline.csv", timelineCsv(), "text/csv"));
}
