// SPDX-License-Identifier: BSL-1.0
// The pictures of points: a panel for each core, all with the same scales. Where points are many, a cell's colour shows their number or
// the mean of the chosen quantity; where they are few, each point is drawn. In overlaid pictures a panel has the points of all runs.
"use strict";

const pointsSingleMax = 2500;
const categoriesMax = 32;

// ---- binning ----

// Counts the points of `layers` (one for each core in the panel) in a grid. `axes` has the spans of coordinates.
function gridOf(layers, axes, columns, rows, colour) {
  const cells = columns * rows;
  const grid = { columns, rows, counts: new Uint32Array(cells), inside: 0, outside: 0, unknown: 0, max: 0 };
  if (colour.kind === "mean") grid.sums = new Float64Array(cells);
  if (colour.kind === "category") grid.of = colour.values.map(() => new Uint32Array(cells));
  const [xLow, xHigh] = axes.x, [yLow, yHigh] = axes.y;
  const xFactor = columns / (xHigh - xLow || 1), yFactor = rows / (yHigh - yLow || 1);
  for (const { x, y, tint, begin, end } of layers) {
    for (let i = begin; i < end; i++) {
      const across = (x[i] - xLow) * xFactor, up = (y[i] - yLow) * yFactor;
      if (!(across >= 0 && across <= columns && up >= 0 && up <= rows)) {
        if (across !== across || up !== up) grid.unknown++; else grid.outside++;
        continue;
      }
      const at = (up === rows ? rows - 1 : up | 0) * columns + (across === columns ? columns - 1 : across | 0);
      grid.counts[at]++;
      grid.inside++;
      if (tint === null) continue;
      if (grid.sums) grid.sums[at] += tint[i] === tint[i] ? tint[i] : 0;
      else if (grid.of) { const k = colour.index.get(tint[i]); if (k !== undefined) grid.of[k][at]++; }
    }
  }
  for (let at = 0; at < cells; at++) if (grid.counts[at] > grid.max) grid.max = grid.counts[at];
  return grid;
}

// Returns the number of points in each of `columns` spans of the axis across.
function histogramOf(layers, axes, columns) {
  const counts = new Uint32Array(columns), [low, high] = axes.x, factor = columns / (high - low || 1);
  let inside = 0, outside = 0, unknown = 0, below = 0;
  for (const { x, begin, end } of layers) {
    for (let i = begin; i < end; i++) {
      const across = (x[i] - low) * factor;
      if (!(across >= 0 && across <= columns)) {
        if (across !== across) unknown++; else outside++;
        if (across < 0) below++;
        continue;
      }
      counts[across === columns ? columns - 1 : across | 0]++;
      inside++;
    }
  }
  return { counts, columns, inside, outside, unknown, below, total: inside + outside };
}

// ---- drawing ----

function colourOfCell(grid, at, colour, look, max) {
  const points = grid.counts[at];
  if (colour.isRun) return colour.colours[runOfCell(grid, at)];
  if (grid.of) {
    let best = 0;
    for (let k = 1; k < grid.of.length; k++) if (grid.of[k][at] > grid.of[best][at]) best = k;
    return colour.colours[best];
  }
  if (grid.sums) return look.ramp[shade((grid.sums[at] / points - colour.low) / (colour.high - colour.low || 1))];
  return look.ramp[shade(max > 1 ? Math.log(points) / Math.log(max) : 0)];
}

function paintGrid(context, place, grid, colour, look, max) {
  const picture = new ImageData(grid.columns, grid.rows);
  const full = Math.log(1 + max);
  for (let row = 0; row < grid.rows; row++) {
    for (let left = 0; left < grid.columns; left++) {
      const at = row * grid.columns + left;
      if (!grid.counts[at]) continue;
      const to = 4 * ((grid.rows - 1 - row) * grid.columns + left);
      const [red, green, blue] = colourOfCell(grid, at, colour, look, max);
      picture.data[to] = red; picture.data[to + 1] = green; picture.data[to + 2] = blue;
      // If the colour has another meaning, cells with few points are paler.
      picture.data[to + 3] = colour.kind === "density" ? 255 : 150 + (105 * Math.log(1 + grid.counts[at])) / full;
    }
  }
  const canvas = new OffscreenCanvas(grid.columns, grid.rows);
  canvas.getContext("2d").putImageData(picture, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(canvas, place.left, place.top, place.width, place.height);
}

function paintPoints(context, place, layers, axes, colour, look) {
  const [xLow, xHigh] = axes.x, [yLow, yHigh] = axes.y;
  for (const { core, x, y, tint, begin, end } of layers) {
    const run = page.runs[core.run];
    for (let i = begin; i < end; i++) {
      const across = (x[i] - xLow) / (xHigh - xLow || 1), up = (y[i] - yLow) / (yHigh - yLow || 1);
      if (!(across >= 0 && across <= 1 && up >= 0 && up <= 1)) continue;
      let made = look.ramp[150];
      if (tint && colour.kind === "category") made = colour.colours[colour.index.get(tint[i])] || look.ramp[0];
      else if (tint) made = look.ramp[shade((tint[i] - colour.low) / (colour.high - colour.low || 1))];
      context.fillStyle = css(made);
      paintMarker(context, run, place.left + across * place.width, place.top + (1 - up) * place.height);
    }
  }
}

function paintBars(context, place, grid, look, max) {
  context.fillStyle = css(look.ramp[150]);
  const wide = place.width / grid.columns;
  grid.bars.forEach((points, at) => {
    const tall = max ? (points / max) * place.height : 0;
    context.fillRect(place.left + at * wide, place.top + place.height - tall, Math.max(0.7, wide - 0.3), tall);
  });
}

function paintMarks(context, place, run, axes, look) {
  context.strokeStyle = isOver() ? runColour(look, run) : look.mark;
  context.setLineDash([4, 3]);
  context.beginPath();
  for (const mark of run.marks) {
    const part = (mark.x - zeroOf(run) - axes.x[0]) / (axes.x[1] - axes.x[0] || 1);
    if (part < 0 || part > 1) continue;
    const x = Math.floor(place.left + part * place.width) + 0.5;
    context.moveTo(x, place.top);
    context.lineTo(x, place.top + place.height);
  }
  context.lineWidth = 1;
  context.stroke();
  context.setLineDash([]);
}
