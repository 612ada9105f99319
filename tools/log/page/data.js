// SPDX-License-Identifier: BSL-1.0
// The page's data: runs with cores, and their columns, which are unpacked when a plot needs them.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
page.runs.forEach((run, number) => run.cores.forEach((core) => {
  core.run = number;
  core.id = `${number}-${core.core}`;
  core.unpacked = new Map();
}));
const allCores = page.runs.flatMap((run) => run.cores);

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Returns the numbers of a packed column: byte planes, all lowest bytes first.
async function unpack(about, text) {
  return about.constant === undefined ? joined(about, await inflate(bytesOf(text))) : joined(about);
}

// Returns the numbers of `count` times `width` bytes.
function joined({ count, width, constant }, planes) {
  if (constant !== undefined) return new (constant < 256 ? Uint8Array : Float64Array)(count).fill(constant);
  if (width === 1) return planes;
  const values = new (width === 2 ? Uint16Array : width <= 4 ? Uint32Array : Float64Array)(count);
  for (let plane = 0; plane < width; plane++) {
    const at = plane * count, factor = 2 ** (8 * plane);
    for (let i = 0; i < count; i++) values[i] += planes[at + i] * factor;
  }
  return values;
}

// Returns a column of a core; null if the run has no such column. Names of the stretches' columns begin with "s_".
function column(core, name) {
  const about = (name.startsWith("s_") ? core.stretch_columns : core.columns)[name];
  if (!about) return Promise.resolve(null);
  if (about.same) return column(core, about.same);
  if (!core.unpacked.has(name)) {
    const element = document.getElementById(`column-${core.id}-${name}`);
    core.unpacked.set(name, unpack(about, element ? element.textContent.trim() : ""));
  }
  return core.unpacked.get(name);
}

function sumsOf(deltas, unit, before) {
  const sums = new Float64Array(deltas.length);
  let sum = 0;
  for (let i = 0; i < deltas.length; i++) {
    sum += deltas[i];
    sums[i] = sum * unit - before;
  }
  return sums;
}

// Returns the first index whose value is not below `wanted`. `values` are in order.
function indexAt(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}
