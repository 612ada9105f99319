// SPDX-License-Identifier: BSL-1.0
// Draws one answer of the server: single points, cells with their number of runs, means with least and greatest, or histograms.
"use strict";

const pointRadius = 3;
const isolatedMax = 4000; // points that stand alone in a density and are drawn larger

// Returns the colours of the categories, or of a ramp, or of the density.
function colouringOf(about, look) {
  const { categories } = about;
  if (categories) {
    const known = categories.filter((value) => value !== null), isOrdered = known.every((value) => typeof value === "number")
      && known.length > 1;
    return { kind: "category", categories, colours: categories.map((value, at) => {
      if (value === null) return channels(look.palette[7]);
      return isOrdered ? look.ramp[shade(0.12 + (0.88 * known.indexOf(value)) / (known.length - 1))] : categoryColour(look, at,
        categories.length);
    }) };
  }
  if (about.colour_span) return { kind: "mean", low: about.colour_span[0], high: about.colour_span[1] };
  return { kind: "density" };
}

const rampAt = (colouring, look, value) => look.ramp[shade((value - colouring.low) / (colouring.high - colouring.low || 1))];

// Returns the cells of each panel: the number of runs, and the index of the colour's row in the answer.
function cellsByPanel({ about, columns }, asked) {
  const size = asked.x_cells * asked.y_cells;
  const panels = about.panels.map(() => ({ n: new Int32Array(size), kinds: new Uint8Array(size), seen: new Uint8Array(size),
    of: new Int32Array(size) }));
  const { g, cell, n } = columns;
  let max = 0;
  for (let i = 0; i < cell.length; i++) {
    const panel = panels[g[i]];
    if (!panel) continue;
    panel.kinds[cell[i]]++;
    const sum = panel.n[cell[i]] += n[i];
    if (sum > max) max = sum;
  }
  // If a cell has several categories, neighbouring cells have their colours in turn.
  for (let i = 0; i < cell.length; i++) {
    const panel = panels[g[i]], at = cell[i];
    if (!panel) continue;
    const turn = ((at % asked.x_cells) + Math.floor(at / asked.x_cells)) % panel.kinds[at];
    if (panel.seen[at]++ === turn) panel.of[at] = i;
  }
  return { panels, max };
}

function colourOfCell(panel, at, columns, colouring, look, max) {
  if (colouring.kind === "category") return colouring.colours[columns.c[panel.of[at]]] || look.ramp[0];
  if (colouring.kind === "mean") return rampAt(colouring, look, columns.t[panel.of[at]]);
  return look.ramp[shade(max > 1 ? 0.08 + (0.92 * Math.log(panel.n[at])) / Math.log(max) : 0.6)];
}

function paintCells(context, place, panel, { columns }, asked, colouring, look, max) {
  const across = asked.x_cells, rows = asked.y_cells, picture = new ImageData(across, rows), full = Math.log(1 + max), alone = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < across; column++) {
      const at = row * across + column;
      if (!panel.n[at]) continue;
      const to = 4 * ((rows - 1 - row) * across + column), colour = colourOfCell(panel, at, columns, colouring, look, max);
      picture.data[to] = colour[0]; picture.data[to + 1] = colour[1]; picture.data[to + 2] = colour[2];
      picture.data[to + 3] = colouring.kind === "density" ? 255 : 140 + (115 * Math.log(1 + panel.n[at])) / full;
      if (panel.n[at] === 1 && alone.length < isolatedMax && isAlone(panel.n, column, row, across, rows)) alone.push([column, row, colour]);
    }
  }
  const canvas = document.createElement("canvas");
  canvas.width = across;
  canvas.height = rows;
  canvas.getContext("2d").putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, place.left, place.top, place.width, place.height);
  for (const [column, row, colour] of alone) {
    paintPoint(context, place.left + ((column + 0.5) / across) * place.width, place.top + (1 - (row + 0.5) / rows) * place.height, colour,
      2);
  }
}

// A run far from all others would be a single pixel, so it is drawn as a point.
function isAlone(n, column, row, across, rows) {
  for (let up = Math.max(0, row - 2); up <= Math.min(rows - 1, row + 2); up++) {
    for (let at = Math.max(0, column - 2); at <= Math.min(across - 1, column + 2); at++) {
      if ((at !== column || up !== row) && n[up * across + at]) return false;
    }
  }
  return true;
}

function paintPoint(context, x, y, colour, radius) {
  context.fillStyle = css(colour);
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

function coordinatesOf(place, about) {
  return {
    x: (value) => place.left + partOf(about.x, value) * place.width,
    y: (value) => place.top + (1 - partOf(about.y, value)) * place.height,
  };
}

function paintSinglePoints(context, place, panel, { about, columns }, colouring, look) {
  const to = coordinatesOf(place, about);
  context.globalAlpha = 0.8;
  for (let i = 0; i < columns.x.length; i++) {
    if (columns.g[i] !== panel) continue;
    let colour = look.ramp[150];
    if (colouring.kind === "category") colour = colouring.colours[columns.c[i]] || colour;
    else if (colouring.kind === "mean") colour = rampAt(colouring, look, columns.t[i]);
    paintPoint(context, to.x(columns.x[i]), to.y(columns.y[i]), colour, pointRadius);
  }
  context.globalAlpha = 1;
}

// Returns the indices of an answer's rows for each category of a panel.
function byCategory(columns, panel) {
  const found = new Map();
  for (let i = 0; i < columns.c.length; i++) {
    if (columns.g[i] !== panel) continue;
    if (!found.has(columns.c[i])) found.set(columns.c[i], []);
    found.get(columns.c[i]).push(i);
  }
  return found;
}

function paintMeans(context, place, panel, { about, columns }, colouring, look) {
  const to = coordinatesOf(place, about);
  for (const [category, rows] of byCategory(columns, panel)) {
    const colour = css(colouring.kind === "category" ? colouring.colours[category] || look.ramp[150] : look.ramp[150]);
    context.fillStyle = context.strokeStyle = colour;
    const half = about.spans ? Math.max(0.5, place.width / about.spans / 2) : 0;
    context.globalAlpha = about.spans ? 0.25 : 0.7;
    context.lineWidth = 1;
    for (const i of rows) {
      const x = to.x(columns.x[i]), low = to.y(columns.low[i]), high = to.y(columns.high[i]);
      if (half) context.fillRect(x - half, high, 2 * half, Math.max(1, low - high));
      else { context.beginPath(); context.moveTo(x, low); context.lineTo(x, high); context.stroke(); }
    }
    context.globalAlpha = 1;
    context.lineWidth = 1.8;
    context.beginPath();
    rows.forEach((i, at) => {
      if (at) context.lineTo(to.x(columns.x[i]), to.y(columns.y[i])); else context.moveTo(to.x(columns.x[i]), to.y(columns.y[i]));
    });
    context.stroke();
    if (!half) for (const i of rows) { context.beginPath(); context.arc(to.x(columns.x[i]), to.y(columns.y[i]), pointRadius, 0,
      2 * Math.PI); context.fill(); }
  }
}

// Returns the heights of the bars of each category: numbers, or percent of the panel's runs of that category.
function heightsOf({ about, columns }, panel, isCumulative) {
  return [...byCategory(columns, panel)].map(([category, rows]) => {
    const counts = new Array(about.bars).fill(0);
    let below = 0, total = 0;
    for (const i of rows) {
      total += columns.n[i];
      if (columns.cell[i] < 0) below += columns.n[i];
      else counts[Math.min(columns.cell[i], about.bars - 1)] += columns.cell[i] < about.bars ? columns.n[i] : 0;
    }
    if (!isCumulative) return { category, heights: counts };
    let sum = below;
    return { category, heights: counts.map((count) => (100 * (sum += count)) / total) };
  });
}

function paintBars(context, place, series, about, most, colouring, look) {
  const wide = place.width / about.bars;
  for (const { category, heights } of series) {
    context.strokeStyle = css(colouring.kind === "category" ? colouring.colours[category] || look.ramp[150] : look.ramp[150]);
    context.lineWidth = 1.8;
    context.beginPath();
    heights.forEach((value, at) => {
      const y = place.top + place.height * (1 - value / (most || 1));
      if (at) context.lineTo(place.left + at * wide, y); else context.moveTo(place.left, y);
      context.lineTo(place.left + (at + 1) * wide, y);
    });
    context.stroke();
  }
}

// Draws a picture into a context of the given size. Returns its panels with their places.
function paintPicture(context, width, height, places, found, asked, look) {
  const { about } = found, colouring = colouringOf(about, look), isBars = about.kind === "bars";
  context.clearRect(0, 0, width, height);
  const cells = about.kind === "cells" ? cellsByPanel(found, asked) : null;
  const bars = isBars ? about.panels.map((_, at) => heightsOf(found, at, about.mode === "cumulative")) : null;
  const most = isBars ? (about.mode === "cumulative" ? 100 : Math.max(1, ...bars.flatMap((each) => each.flatMap(({
    heights }) => heights))) * 1.04) : 1;
  const axes = { scaleX: asked.x_scale, scaleY: isBars ? "linear" : asked.y_scale, x: about.x, y: isBars ? [0, most] : about.y,
    namesX: about.x_values, namesY: isBars ? null : about.y_values };
  about.panels.forEach((value, at) => {
    const place = places[at];
    context.fillStyle = look.panel;
    context.fillRect(place.left, place.top, place.width, place.height);
    paintTicks(context, place, axes, look, false);
    context.save();
    context.beginPath();
    context.rect(place.left, place.top, place.width, place.height);
    context.clip();
    if (cells) paintCells(context, place, cells.panels[at], found, asked, colouring, look, cells.max);
    else if (about.kind === "points") paintSinglePoints(context, place, at, found, colouring, look);
    else if (about.kind === "means") paintMeans(context, place, at, found, colouring, look);
    else paintBars(context, place, bars[at], about, most, colouring, look);
    context.restore();
    const title = asked.group ? `${quantities.get(asked.group).title} ${valueText(value)}` : "";
    paintFrame(context, place, look, title, []);
    paintTicks(context, place, axes, look, true);
  });
  const up = about.mode === "count" ? "number of runs" : about.mode === "cumulative" ? "share of the runs up to here (%)"
    : labelOf(asked.y);
  paintAxisTitles(context, width, height, { x: labelOf(asked.x), y: up }, look);
  return { colouring, cells, axes };
}
