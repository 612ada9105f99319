// SPDX-License-Identifier: BSL-1.0
// Panels of a picture: their places, frames, ticks and titles. All pages with pictures on a canvas share them.
"use strict";

const margin = { left: 62, right: 10, top: 4, bottom: 34, title: 16, gap: 10 };
const minimumPanelWidth = 135;

// Returns the rectangles of `count` panels in a canvas of `width` pixels, and the canvas's height.
function arrange(count, width) {
  const space = width - margin.left - margin.right;
  const fits = (columns) => columns === 1 || (space - (columns - 1) * margin.gap) / columns >= minimumPanelWidth;
  const wanted = Math.ceil(Math.sqrt(count));
  let columns = wanted;
  while (columns > 1 && !fits(columns)) columns--;
  // Full rows look better than a last row with one panel.
  for (let fewer = columns; fewer > columns / 2; fewer--) if (count % fewer === 0) { columns = fewer; break; }
  const rows = Math.ceil(count / columns), heights = [420, 240, 180, 150];
  const height = rows > heights.length ? 118 : heights[rows - 1];
  const each = (space - (columns - 1) * margin.gap) / columns;
  const places = Array.from({ length: count }, (_, at) => ({
    left: margin.left + (at % columns) * (each + margin.gap), width: each, height,
    top: margin.top + Math.floor(at / columns) * (height + margin.title) + margin.title,
    isFirst: at % columns === 0, isLast: at + columns >= count,
  }));
  return { places, height: margin.top + rows * (height + margin.title) + margin.bottom };
}

const shade = (part) => (part !== part ? 0 : Math.max(0, Math.min(255, Math.round(255 * part))));

// Draws a panel's border, its title, and on the right side its keys: texts with colours, as far as there is room.
function paintFrame(context, place, look, title, keys) {
  context.strokeStyle = look.line;
  context.lineWidth = 1;
  context.strokeRect(Math.round(place.left) - 0.5, Math.round(place.top) - 0.5, Math.round(place.width) + 1, Math.round(place.height) + 1);
  context.textBaseline = "alphabetic";
  context.font = "600 12px system-ui, sans-serif";
  context.fillStyle = look.ink;
  context.textAlign = "left";
  context.fillText(title, place.left, place.top - 4);
  const titleWidth = context.measureText(title).width;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  let right = place.left + place.width;
  for (const { text, colour } of keys.slice().reverse()) {
    const left = right - context.measureText(text).width;
    if (left < place.left + titleWidth + 8) break;
    context.fillStyle = colour || look.dim;
    context.fillText(text, right, place.top - 4);
    right = left - 10;
  }
}

// Returns the ticks of an axis. `names`: if its values are numbers of names.
function axisTicks(names, scale, span, wanted) {
  return names ? [...names.keys()].filter((at) => at >= span[0] && at <= span[1]) : ticksOf(scale, span[0], span[1], Math.max(2, wanted));
}

function axisTexts(names, ticks, letters) {
  const short = (name) => (name.length > letters ? `${name.slice(0, letters - 1)}\u2026` : name);
  return names ? ticks.map((at) => short(names[at])) : tickTexts(ticks);
}

// Draws tick lines behind the points, or with `texts` their numbers beside the panels. An axis of names has `namesX` or `namesY`.
function paintTicks(context, place, axes, look, texts) {
  const across = axisTicks(axes.namesX, axes.scaleX, axes.x, place.width / 75);
  const up = axisTicks(axes.namesY, axes.scaleY, axes.y, place.height / 34);
  const xOf = (value) => place.left + ((scaleOf[axes.scaleX].to(value) - axes.x[0]) / (axes.x[1] - axes.x[0] || 1)) * place.width;
  const yOf = (value) => place.top + (1 - (scaleOf[axes.scaleY].to(value) - axes.y[0]) / (axes.y[1] - axes.y[0] || 1)) * place.height;
  if (!texts) {
    context.strokeStyle = look.line;
    context.globalAlpha = 0.6;
    context.beginPath();
    for (const value of across) { context.moveTo(xOf(value), place.top); context.lineTo(xOf(value), place.top + place.height); }
    for (const value of up) { context.moveTo(place.left, yOf(value)); context.lineTo(place.left + place.width, yOf(value)); }
    context.stroke();
    context.globalAlpha = 1;
    return;
  }
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = look.dim;
  if (place.isFirst) {
    context.textAlign = "right";
    context.textBaseline = "middle";
    const shown = axisTexts(axes.namesY, up, 9);
    let last = Infinity;
    up.forEach((value, at) => {
      const y = yOf(value);
      if (last - y < 11) return;
      context.fillText(shown[at], place.left - 5, Math.max(place.top + 4, Math.min(place.top + place.height - 3, y)));
      last = y;
    });
  }
  if (place.isLast) {
    context.textBaseline = "top";
    const shown = axisTexts(axes.namesX, across, 16);
    let right = -Infinity;
    across.forEach((value, at) => {
      const half = context.measureText(shown[at]).width / 2, rightmost = place.left + place.width - half;
      const x = Math.max(place.left + half - 2, Math.min(rightmost, xOf(value)));
      if (x - half < right + 6) return;
      context.textAlign = "center";
      context.fillText(shown[at], x, place.top + place.height + 4);
      right = x + half;
    });
  }
}

function paintAxisTitles(context, width, height, texts, look) {
  context.fillStyle = look.ink;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText(texts.x, margin.left + (width - margin.left - margin.right) / 2, height - 2);
  context.save();
  context.translate(13, (height - margin.bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.textBaseline = "middle";
  context.fillText(texts.y, 0, 0);
  context.restore();
}

// Prepares a canvas for drawing in CSS pixels.
function prepared(canvas, width, height) {
  const dense = Math.min(3, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * dense);
  canvas.height = Math.round(height * dense);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(dense, 0, 0, dense, 0, 0);
  return context;
}
