// SPDX-License-Identifier: BSL-1.0
// The page: asks the server for the picture of the choices, draws it, and shows the run that a click chooses.
"use strict";

const shown = { found: null, asked: null, places: [], painted: null };
let asking = null;
const cellPixels = 2, newsEveryMs = 10000;

function askedNow() {
  const canvas = byId("plot"), width = canvas.clientWidth || 1100;
  const group = page.filters.find(({ name }) => name === state.group);
  const { places } = arrange(Math.min(12, group && group.values ? group.values.length : 1), width);
  const asked = {
    x: state.x, x_scale: scaleNow("x"), x_cells: Math.max(1, Math.round(places[0].width / cellPixels)), x_span: state.view.x
      && state.view.x.join(","),
    colour: state.colour, group: state.group, mode: state.mode, filters: filtersText(),
  };
  if (isHistogram()) return { asked, width };
  return { width, asked: { ...asked, y: state.y, y_scale: scaleNow("y"), y_cells: Math.max(1, Math.round(places[0].height / cellPixels)),
    y_span: state.view.y && state.view.y.join(",") } };
}

async function draw() {
  const begin = performance.now(), { asked, width } = askedNow(), root = document.documentElement.dataset;
  writeAddress();
  if (asking) asking.abort();
  const mine = asking = new AbortController();
  byId("state").textContent = "asking\u2026";
  let found;
  try {
    found = await askColumns("picture", asked, mine.signal);
  } catch (error) {
    if (error.name !== "AbortError") { byId("state").textContent = error.message; root.error = error.message; }
    return;
  }
  if (mine !== asking) return;
  delete root.error;
  const look = theme(), { places, height } = arrange(found.about.panels.length, width);
  const painted = paintPicture(prepared(byId("plot"), width, height), width, height, places, found, asked, look);
  Object.assign(shown, { found, asked, places, painted });
  showLegend(found.about, painted.colouring, look);
  const kind = { cells: "as density", points: "as points", means: "as means", bars: "counted" }[found.about.kind];
  const [inside, all] = [found.about.inside, page.count].map((count) => count.toLocaleString("en-US"));
  byId("state").textContent = `${inside} of ${all} runs in view, ${kind}`;
  byId("as-csv").dataset.address = addressOf("rows.csv", asked);
  requestAnimationFrame(() => requestAnimationFrame(() => {
    root.drawMs = (performance.now() - begin).toFixed(1);
    if (!root.firstPictureMs) root.firstPictureMs = performance.now().toFixed(1);
    root.drawn = String(Number(root.drawn || 0) + 1);
  }));
}

function panelAt(x, y) {
  const at = shown.places.findIndex(({ left, top, width, height }) => x >= left - 4 && x <= left + width + 4 && y >= top - 4
    && y <= top + height + 4);
  return at < 0 || !shown.found ? null : { place: shown.places[at], number: at };
}

// Looks at parts of the axes now shown. Spans are kept in the quantity's unit, because the scale may change.
function look(across, up) {
  const { about } = shown.found;
  for (const [axis, parts] of [["x", across], ["y", up]]) {
    if (!parts || !about[axis]) continue;
    const from = scaleOf[shown.asked[`${axis}_scale`]].from, span = parts.map((part) => from(atPart(about[axis], part)));
    if (span[1] > span[0] && span.every(Number.isFinite)) state.view[axis] = span;
  }
  return draw();
}

async function clicked(panel, across, up) {
  if (!shown.found || state.mode !== "points") return;
  const { about } = shown.found;
  const at = { panel: panel.number, at_x: atPart(about.x, across), at_y: atPart(about.y, up) };
  const found = await (await ask("nearest", { ...shown.asked, ...at })).json();
  if (found) await showRun(found); else byId("readout").textContent = "No run is here.";
}

async function showRun({ row, columns, has_log }) {
  const names = ["arm", "load", "rate_wanted", "itr_us", "frequency_ghz", "idle", "repeat"].filter((name) => columns[name] !== null
    && columns[name] !== undefined);
  byId("run").hidden = false;
  byId("run").dataset.row = String(row);
  const titleOf = (name) => (quantities.has(name) ? quantities.get(name).title : name);
  const facts = names.map((name) => `${titleOf(name)} ${valueText(columns[name])}${unitOf(name)}`);
  byId("run-title").textContent = `Run ${columns.run || row}: ${facts.join(", ")}`;
  byId("run-table").replaceChildren(...Object.entries(columns).filter(([, value]) => value !== null).map(([name, value]) => {
    return element("tr", "", element("td", "", name), element("td", "", typeof value === "number" ? String(value) : value));
  }));
  byId("run-links").replaceChildren();
  byId("timeline-part").hidden = true;
  if (!has_log) { byId("run-links").textContent = "This run has no log, so it has no report and no timeline."; return; }
  const link = element("a", "", "report of this run");
  link.href = addressOf("report.html", { row });
  link.target = "_blank";
  byId("run-links").append(link);
  await openTimeline(row);
}

function readOut(panel, x, y) {
  if (!panel || !shown.found) { byId("readout").textContent = ""; return; }
  const { about, columns } = shown.found, across = clamped((x - panel.place.left) / panel.place.width),
    up = clamped(1 - (y - panel.place.top) / panel.place.height);
  const text = (axis, part) => {
    const at = atPart(about[axis], part), names = about[`${axis}_values`];
    return `${labelOf(state[axis])} ${names ? names[Math.round(at)] || "" : number(scaleOf[shown.asked[`${axis}_scale`]].from(at))}`;
  };
  let said = text("x", across);
  if (about.y) said += `   ${text("y", up)}`;
  if (about.kind === "cells") {
    const column = Math.min(shown.asked.x_cells - 1, Math.floor(across * shown.asked.x_cells)), row = Math.min(shown.asked.y_cells - 1,
      Math.floor(up * shown.asked.y_cells));
    const count = shown.painted.cells.panels[panel.number].n[row * shown.asked.x_cells + column];
    said += `   ${count ? count.toLocaleString("en-US") : "no"} run${count === 1 ? "" : "s"} here`;
  } else if (about.kind === "points") said += `   ${columns.x.length.toLocaleString("en-US")} points`;
  byId("readout").textContent = said;
}

function showFigure() {
  const name = byId("figure").value;
  byId("figure-place").replaceChildren();
  byId("figure-links").replaceChildren();
  if (!name) return;
  const asked = { name, filters: filtersText(), row: name === "timeline" ? timeline.row : null };
  const picture = element("img");
  picture.alt = byId("figure").selectedOptions[0].textContent;
  picture.addEventListener("error", async () => {
    try { await ask("figure", asked); } catch (error) { byId("figure-place").textContent = error.message; }
  });
  picture.src = addressOf("figure", asked);
  byId("figure-place").append(picture);
  for (const [kind, text] of [["file", "SVG"], ["csv", "CSV"]]) {
    const link = element("a", "", text);
    link.href = addressOf("figure", { ...asked, as: kind });
    byId("figure-links").append(link, " ");
  }
}

// Says how many runs a sweep has added since the page was opened.
async function askNews() {
  if (document.hidden) return;
  const { changed, added } = await (await ask("news", {})).json();
  byId("reload").hidden = !changed;
  byId("news").textContent = !changed ? "" : added > 0 ? `${added.toLocaleString("en-US")} new run${added === 1 ? "" : "s"}.`
    : "The runs have changed.";
}

// The choices are in the address, so the page keeps them.
async function reload() {
  byId("news").textContent = "reading\u2026";
  try {
    await ask("reload", {});
    location.reload();
  } catch (error) {
    byId("news").textContent = error.message;
  }
}

function pictureAsSvg() {
  const canvas = byId("plot"), { places, height } = arrange(shown.found.about.panels.length, canvas.clientWidth), colours = theme();
  const context = new SvgContext(canvas.clientWidth, height, colours.paper);
  paintPicture(context, canvas.clientWidth, height, places, shown.found, shown.asked, colours);
  return context.text();
}

function begin() {
  byId("about").textContent = [`${page.count.toLocaleString("en-US")} runs.`, ...page.notes].join(" ");
  fillChoices();
  fillFilters();
  readAddress();
  showChoices();
  showFilters();
  watchCanvas(byId("plot"), byId("frame"), {
    panelAt, zoom: look, reset: showAll, click: clicked, hover: readOut,
    move: (across, up) => look([across, 1 + across], isHistogram() || !up ? null : [up, 1 + up]),
  });
  byId("as-svg").addEventListener("click", () => saveAs("runs.svg", pictureAsSvg(), "image/svg+xml"));
  byId("as-csv").addEventListener("click", () => { location.href = byId("as-csv").dataset.address; });
  byId("figure").append(option("", "choose one"), ...page.figures.map(({ name, title }) => option(name, title)));
  byId("figure").addEventListener("change", showFigure);
  byId("figures").addEventListener("submit", (event) => event.preventDefault());
  byId("reload").addEventListener("click", reload);
  setInterval(() => askNews().catch(() => {}), newsEveryMs);
  beginTimeline();
  themeQuery.addEventListener("change", () => draw());
  let last = document.body.clientWidth;
  addEventListener("resize", () => {
    if (document.body.clientWidth === last) return;
    last = document.body.clientWidth;
    draw();
    if (timeline.found) drawTimeline();
  });
  return draw();
}

begin().catch((error) => { document.documentElement.dataset.error = String(error && error.stack ? error.stack : error); });
