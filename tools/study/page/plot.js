// SPDX-License-Identifier: BSL-1.0
// Draws one answer of the server: single points, cells with their number of runs, means with least and greatest, or histograms.
"use strict";

const pointRadius = 3;
const isolatedMax = 4000; // points that stand alone in a density and are drawn larger

// Returns the colours of the categories, or of a ramp, or of the density.
function colouringOf(about, look) {
  const { categories } = about;
  if (categories) {
    const known = categories.filter((value) => value !== null), isOrdered = known.every((value) => typeof value === "number") && known.length > 1;
    return { kind: "category", categories, colours: categories.map((value, at) => {
      if (value === null) return channels(look.palette[7]);
      return isOrdered ? look.ramp[shade(0.12 + (0.88 * known.indexOf(value)) / (known.length - 1))] : categoryColour(look, at, categories.length);
    }) };
  }
  if (about.colour_span) return { kind: "mean", low: about.colour_span[0], high: about.colour_span[1] };
  return { kind: "density" };
}

const rampAt = (colouring, look, value) => look.ramp[shade((value - colouring.low) / (colouring.high - colouring.low || 1))];

// Returns for each panel its cells: the number of runs, the colour's sum or the counts of categories, and the row of one run.
function cellsByPanel({ about, columns }, asked, colouring) {
  const panels = about.panels.map(() => new Map());
  const { g, c, cell, n, r, t } = columns;
  let max = 0;
  for (let i = 0; i < cell.length; i++) {
    const cells = panels[g[i]];
    if (!cells) continue;
    let known = cells.get(cell[i]);
    if (!known) cells.set(cell[i], known = { n: 0, r: r[i], sum: 0, of: colouring.kind === "category" ? [] : null });
    known.n += n[i];
    if (t[i] === t[i]) known.sum += t[i] * n[i];
    if (known.of) known.of.push([c[i], n[i]]);
    if (known.n > max) max = known.n;
  }
  return { panels, max };
}

function colourOfCell(known, column, row, colouring, look, max) {
  if (known.of) {
    // If a cell has several categories, neighbouring cells have their colours in turn.
    const shown = known.of.length === 1 ? known.of[0] : known.of[(column + row) % known.of.length];
    return colouring.colours[shown[0]] || [128, 128, 128];
  }
  if (colouring.kind === "mean") return rampAt(colouring, look, known.sum / known.n);
  return look.ramp[shade(max > 1 ? 0.08 + (0.92 * Math.log(known.n)) / Math.log(max) : 0.6)];
}

function paintCells(context, place, cells, asked, colouring, look, max) {
  const columns = asked.x_cells, rows = asked.y_cells;
  const picture = new ImageData(columns, rows), full = Math.log(1 + max), alone = [];
  for (const [at, known] of cells) {
    const column = at % columns, row = Math.floor(at / columns), to = 4 * ((rows - 1 - row) * columns + column);
    const [red, green, blue] = colourOfCell(known, column, row, colouring, look, max);
    picture.data[to] = red; picture.data[to + 1] = green; picture.data[to + 2] = blue;
    picture.data[to + 3] = colouring.kind === "density" ? 255 : 140 + (115 * Math.log(1 + known.n)) / full;
    if (known.n === 1 && alone.length < isolatedMax && isAlone(cells, column, row, columns)) alone.push([column, row, [red, green, blue]]);
  }
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext("2d").putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, place.left, place.top, place.width, place.height);
  for (const [column, row, colour] of alone) {
    paintPoint(context, place.left + ((column + 0.5) / columns) * place.width, place.top + (1 - (row + 0.5) / rows) * place.height, colour, 2);
  }
}

// A run far from all others would be a single pixel, so it is drawn as a point.
function isAlone(cells, column, row, columns) {
  for (let up = -2; up <= 2; up++) {
    for (let across = -2; across <= 2; across++) {
      if ((across || up) && column + across >= 0 && column + across < columns && cells.has((row + up) * columns + column + across)) return false;
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
    if (!half) for (const i of rows) { context.beginPath(); context.arc(to.x(columns.x[i]), to.y(columns.y[i]), pointRadius, 0, 2 * Math.PI); context.fill(); }
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
  const cells = about.kind === "cells" ? cellsByPanel(found, asked, colouring) : null;
  const bars = isBars ? about.panels.map((_, at) => heightsOf(found, at, about.mode === "cumulative")) : null;
  const most = isBars ? (about.mode === "cumulative" ? 100 : Math.max(1, ...bars.flatMap((each) => each.flatMap(({ heights }) => heights))) * 1.04) : 1;
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
    if (cells) paintCells(context, place, cells.panels[at], asked, colouring, look, cells.max);
    else if (about.kind === "points") paintSinglePoints(context, place, at, found, colouring, look);
    else if (about.kind === "means") paintMeans(context, place, at, found, colouring, look);
    else paintBars(context, place, bars[at], about, most, colouring, look);
    context.restore();
    const title = asked.group ? `${quantities.get(asked.group).title} ${valueText(value)}` : "";
    paintFrame(context, place, look, title, []);
    paintTicks(context, place, axes, look, true);
  });
  const up = about.mode === "count" ? "number of runs" : about.mode === "cumulative" ? "share of the runs up to here (%)" : labelOf(asked.y);
  paintAxisTitles(context, width, height, { x: labelOf(asked.x), y: up }, look);
  return { colouring, cells, axes };
}
