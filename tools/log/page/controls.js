// SPDX-License-Identifier: BSL-1.0
// The choices above the pictures, the page's address, and zoom by mouse and keyboard.
"use strict";

function option(value, text, isOff) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = isOff ? `${text}: not in this log` : text;
  made.disabled = Boolean(isOff);
  return made;
}

function fillChoices() {
  const group = (label, names) => {
    const made = document.createElement("optgroup");
    made.label = label;
    made.append(...names.map((name) => option(name, labelOf(name, false), !isThere(name))));
    return made;
  };
  const all = Object.keys(quantity), chosen = all.filter((name) => quantity[name].chosen);
  const groups = () => [
    group("of each record", all.filter((name) => quantity[name].record)),
    group("between two samples of the counters", all.filter((name) => !quantity[name].record && !quantity[name].chosen)),
    ...(chosen.length ? [group("chosen events", chosen)] : []),
  ];
  byId("x").append(...groups());
  const histogramTexts = { count: "how many (histogram)", share: "share of the points (histogram)", cdf: "share up to here (cumulative)" };
  byId("y").append(...Object.entries(histogramTexts).map(([name, text]) => option(name, text)), ...groups());
  byId("colour").append(option("density", "number of points"), ...groups());
  const numbers = [...new Set(allCores.map((core) => core.core))].sort((a, b) => a - b);
  byId("cores").append(option("apart", "each in its panel"), option("together", "all in one panel"));
  byId("cores").append(...numbers.map((each) => option(String(each), `core ${each} only`)));
  const noWindow = page.runs.every((run) => !run.window);
  byId("zero").append(option("run", "begin of each run"), option("window", "begin of the measured window", noWindow));
  document.querySelectorAll("label.several").forEach((label) => { label.hidden = !isSeveral; });
  for (const id of Object.keys(usual)) {
    if (![...byId(id).options].some((each) => each.value === state[id] && !each.disabled)) state[id] = usual[id];
    byId(id).value = state[id];
    byId(id).addEventListener("change", () => choose(id, byId(id).value));
  }
  byId("reset").addEventListener("click", showAll);
}

function choose(id, value) {
  state[id] = value;
  byId(id).value = value;
  if (id === "x" || id === "scales") state.view.x = null;
  if (id === "y" || id === "scales") state.view.y = null;
  if (id === "layout") makeRuns();
  if (id === "zero") {
    state.time = null;
    kept.clear();
    coordinatesKept.clear();
  }
  return redraw();
}

function redraw() {
  byId("state").textContent = "drawing\u2026";
  return draw();
}

function showAll() {
  state.view = { x: null, y: null };
  state.time = null;
  return redraw();
}

// ---- the address ----
// report.html#time=1.5,1.6&y=rx_bytes opens the page at the time from 1.5 s to 1.6 s, with bytes upwards.

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const span = (text) => {
    const parts = (text || "").split(",").map(Number);
    return parts.length === 2 && parts.every(Number.isFinite) && parts[0] < parts[1] ? parts : null;
  };
  for (const id of Object.keys(usual)) if (given.has(id)) state[id] = given.get(id);
  state.time = span(given.get("time"));
  state.view.x = span(given.get("across"));
  state.view.y = span(given.get("up"));
}

function writeAddress() {
  const made = new URLSearchParams();
  for (const id of Object.keys(usual)) if (state[id] !== usual[id]) made.set(id, state[id]);
  for (const [name, span] of [["time", state.time], ["across", state.view.x], ["up", state.view.y]]) {
    if (span) made.set(name, span.map((value) => Number(value.toPrecision(9))).join(","));
  }
  const text = made.toString().replaceAll("%2C", ",");
  try {
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  } catch { /* Some browsers refuse this for local files. */ }
}

// ---- the runs' canvases ----

// Makes the canvases of each group of runs, in place of those of another choice.
function makeRuns() {
  byId("runs").replaceChildren();
  places.length = 0;
  shown = null;
  groupsNow().forEach((group, number) => {
    const parts = ["section", "canvas", "div", "canvas", "div"].map((name) => document.createElement(name));
    const [section, points, readout, strips, stripsReadout] = parts;
    section.className = "run";
    if (isSeveral && !isOver()) {
      const heading = document.createElement("h2");
      heading.textContent = group.name;
      section.append(heading);
    }
    readout.className = stripsReadout.className = "readout";
    points.tabIndex = strips.tabIndex = 0;
    strips.setAttribute("role", "img");
    points.setAttribute("role", "img");
    strips.setAttribute("aria-label", `${group.name}: latency, power, energy per interrupt, interrupts per second and sleep over time`);
    section.append(points, readout, strips, stripsReadout);
    for (const run of group.runs.filter(({ latency }) => latency.windows.length)) {
      const note = document.createElement("p");
      note.className = "note";
      note.textContent = isOver() && isSeveral ? `${run.short}: ${run.latency.note}` : run.latency.note;
      section.append(note);
    }
    byId("runs").append(section);
    places.push({ points, strips, readout, stripsReadout, strip: [] });
    watch(points, number, false, section);
    watch(strips, number, true, section);
  });
}

// Returns the panel at a position, or for the strips the area of time.
function panelAt(number, isStrips, x, y) {
  if (!shown) return null;
  const { panels, width } = shown.runs[number];
  if (isStrips) {
    const axes = { scaleX: "linear", x: state.time || wholeTime() };
    const place = { left: margin.left, top: 0, width: width - margin.left - margin.right, height: places[number].strips.clientHeight };
    return x < place.left || x > place.left + place.width ? null : { place, axes };
  }
  const isIn = (at, from, length) => at >= from - 4 && at <= from + length + 4;
  const panel = panels.find(({ place }) => isIn(x, place.left, place.width) && isIn(y, place.top, place.height));
  return panel && { ...panel, axes: shown.axes };
}

const partX = (panel, x) => Math.max(0, Math.min(1, (x - panel.place.left) / panel.place.width));
const partY = (panel, y) => Math.max(0, Math.min(1, 1 - (y - panel.place.top) / panel.place.height));
const atPart = (span, part) => span[0] + part * (span[1] - span[0]);

// Sets the span of the axis across (in coordinates), which is the span of time if time is across or the strips are meant.
function lookAcross(span, isStrips) {
  const values = span.map(scaleOf[isStrips ? "linear" : shown.axes.scaleX].from);
  if (!(values[1] > values[0])) return;
  if (isStrips || state.x === "time") {
    const [begin, end] = wholeTime(), from = Math.max(begin, values[0]), to = Math.min(end, values[1]);
    if (to - from >= 1e-9) state.time = from <= begin && to >= end ? null : [from, to];
  } else state.view.x = values;
}

function lookUp(span) {
  const values = span.map(scaleOf[shown.axes.scaleY].from);
  if (!isHistogram() && values[1] > values[0]) state.view.y = values;
}

const around = (span, centre, factor) => span.map((value) => centre + (value - centre) * factor);
const moved = (span, part) => span.map((value) => value + part * (span[1] - span[0]));
const spanAcross = (isStrips) => (isStrips ? state.time || wholeTime() : shown.axes.x);

function watch(canvas, number, isStrips, section) {
  let drag = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const frame = document.createElement("div");
  frame.style.cssText = "position:absolute;border:1px solid var(--mark);pointer-events:none;display:none";
  section.append(frame);
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = at(event), panel = panelAt(number, isStrips, x, y);
    if (!panel || event.button > 1) return;
    drag = { panel, x, y, isMove: event.shiftKey || event.button === 1, across: spanAcross(isStrips), up: isStrips ? null : shown.axes.y };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!drag) { if (isStrips) readOutStrips(number, x, y); else readOut(number, x, y); return; }
    if (drag.isMove) {
      lookAcross(moved(drag.across, partX(drag.panel, drag.x) - partX(drag.panel, x)), isStrips);
      if (!isStrips) lookUp(moved(drag.up, partY(drag.panel, drag.y) - partY(drag.panel, y)));
      redraw();
      return;
    }
    const box = canvas.getBoundingClientRect(), flat = isStrips || Math.abs(y - drag.y) < 12;
    const top = flat ? drag.panel.place.top : Math.min(y, drag.y), tall = flat ? drag.panel.place.height : Math.abs(y - drag.y);
    frame.style.display = "block";
    frame.style.left = `${scrollX + box.left + Math.min(x, drag.x)}px`;
    frame.style.top = `${scrollY + box.top + top}px`;
    frame.style.width = `${Math.abs(x - drag.x)}px`;
    frame.style.height = `${tall}px`;
  });
  canvas.addEventListener("pointerup", (event) => {
    frame.style.display = "none";
    const begun = drag;
    drag = null;
    if (!begun || begun.isMove) return;
    const [x, y] = at(event), { panel } = begun;
    if (Math.abs(x - begun.x) < 4) return;
    lookAcross([Math.min(x, begun.x), Math.max(x, begun.x)].map((each) => atPart(panel.axes.x, partX(panel, each))), isStrips);
    if (!isStrips && Math.abs(y - begun.y) >= 12) {
      lookUp([Math.max(y, begun.y), Math.min(y, begun.y)].map((each) => atPart(panel.axes.y, partY(panel, each))));
    }
    redraw();
  });
  canvas.addEventListener("pointercancel", () => { drag = null; frame.style.display = "none"; });
  canvas.addEventListener("dblclick", showAll);
  canvas.addEventListener("wheel", (event) => {
    const [x, y] = at(event), panel = panelAt(number, isStrips, x, y);
    if (!panel || (document.activeElement !== canvas && !event.ctrlKey)) return;
    event.preventDefault();
    const factor = event.deltaY < 0 ? 0.8 : 1.25;
    lookAcross(around(spanAcross(isStrips), atPart(panel.axes.x, partX(panel, x)), factor), isStrips);
    if (event.shiftKey && !isStrips) lookUp(around(panel.axes.y, atPart(panel.axes.y, partY(panel, y)), factor));
    redraw();
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (!shown || event.ctrlKey || event.metaKey || event.altKey) return;
    const across = spanAcross(isStrips), middle = (across[0] + across[1]) / 2;
    const actions = {
      "+": () => lookAcross(around(across, middle, 0.5), isStrips), "=": () => lookAcross(around(across, middle, 0.5), isStrips),
      "-": () => lookAcross(around(across, middle, 2), isStrips),
      ArrowLeft: () => lookAcross(moved(across, -0.25), isStrips), ArrowRight: () => lookAcross(moved(across, 0.25), isStrips),
      ArrowUp: () => isStrips || lookUp(moved(shown.axes.y, 0.25)), ArrowDown: () => isStrips || lookUp(moved(shown.axes.y, -0.25)),
      0: showAll, Escape: showAll, Home: showAll,
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
    redraw();
  });
}

// Writes the values under the mouse: those of the nearest point, or the number of points in the cell.
function readOut(place, x, y) {
  const panel = panelAt(place, false, x, y), { readout } = places[place];
  if (!panel || !panel.grid) { readout.textContent = ""; return; }
  const { axes, grid, title, layers } = panel, across = atPart(axes.x, partX(panel, x)), up = atPart(axes.y, partY(panel, y));
  const text = (name, at, scale) => `${labelOf(name, shown.level)} ${number(scaleOf[scale].from(at))}`;
  let found = `${title}   ${text(state.x, across, axes.scaleX)}   `;
  const nearest = grid.inside <= pointsSingleMax && !grid.series ? nearestPoint(panel, x, y) : null;
  if (nearest) {
    const { layer, i } = nearest;
    const values = `${text(state.x, layer.x[i], axes.scaleX)}   ${text(state.y, layer.y[i], axes.scaleY)}`;
    const of = isOver() && isSeveral ? `${page.runs[layer.core.run].short}, ` : "";
    found = `${of}core ${layer.core.core}   point at ${layer.time[i].toFixed(9)} s   ${values}`;
    if (layer.tint && shown.colour.kind === "mean") found += `   ${text(state.colour, layer.tint[i], shown.colour.scale)}`;
    if (layer.tint && shown.colour.kind === "category") found += `   ${shown.colour.names[shown.colour.index.get(layer.tint[i])]}`;
  } else {
    const row = Math.min(grid.rows - 1, Math.floor(partY(panel, y) * grid.rows));
    const at = row * grid.columns + Math.min(grid.columns - 1, Math.floor(partX(panel, x) * grid.columns));
    if (!grid.series) found += `${text(state.y, up, axes.scaleY)}   `;
    if (grid.series && isOver()) {
      found += grid.series.map(({ run, bars }) => `${run.short} ${number(bars[at])} ${histograms[state.y].unit}`).join("   ");
    } else if (grid.of && isOver() && shown.colour.isRun) {
      found += `here: ${page.runs.map((run) => `${run.short} ${pointsText(grid.of[run.number][at])}`).join("   ")}`;
    } else found += `${pointsText(grid.counts[at])} here${layers.length > 1 ? ", of all cores" : ""}`;
  }
  readout.textContent = found;
}

// Writes the values of a strip's curves at the time under the mouse.
function readOutStrips(place, x, y) {
  const panel = panelAt(place, true, x, y), { stripsReadout, strip } = places[place];
  const under = strip.find(({ top, height }) => y >= top && y <= top + height);
  stripsReadout.textContent = panel && under ? stripText(under, atPart(panel.axes.x, partX(panel, x))) : "";
}

function nearestPoint(panel, x, y) {
  const { axes, place } = panel;
  let best = null, distance = 100;
  for (const layer of panel.layers) {
    for (let i = layer.begin; i < layer.end; i++) {
      const dx = ((layer.x[i] - axes.x[0]) / (axes.x[1] - axes.x[0] || 1)) * place.width - (x - place.left);
      const dy = (1 - (layer.y[i] - axes.y[0]) / (axes.y[1] - axes.y[0] || 1)) * place.height - (y - place.top);
      if (dx * dx + dy * dy < distance) { distance = dx * dx + dy * dy; best = { layer, i }; }
    }
  }
  return best;
}
