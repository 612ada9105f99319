// SPDX-License-Identifier: BSL-1.0
// The table's description, questions to the server, and small helpers.
"use strict";

const page = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const quantities = new Map(page.quantities.map((each) => [each.name, each]));
const labelOf = (name) => (quantities.has(name) ? quantities.get(name).label : name);
// The unit in a label, such as " us" of "ITR (us)".
const unitOf = (name) => (/\(([^()]*)\)$/.exec(labelOf(name)) || ["", ""])[1].replace(/^(?=.)/, " ");
const notSet = "not set";
const valueText = (value) => (value === null ? notSet : typeof value === "number" ? number(value) : String(value));

// Returns the address of a question. Members that are null are left out.
function addressOf(name, asked) {
  const given = Object.entries(asked).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `${name}?${new URLSearchParams(given)}`;
}

async function ask(name, asked, signal) {
  const answer = await fetch(addressOf(name, asked), { signal });
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

// Returns a description and columns of numbers: the length of a JSON text, the text, and the arrays (packed in view_server.py).
async function askColumns(name, asked, signal) {
  const bytes = await (await ask(name, asked, signal)).arrayBuffer();
  const length = Number(new DataView(bytes).getBigUint64(0, true));
  const about = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length)));
  const kinds = { Int32: Int32Array, Float32: Float32Array, Float64: Float64Array }, columns = {};
  for (const [column, kind, at, count] of about.arrays) columns[column] = new kinds[kind](bytes, 8 + length + at, count);
  return { about, columns };
}

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function option(value, text) {
  const made = element("option", "", text);
  made.value = value;
  return made;
}

// Offers a text as a file to the reader.
function saveAs(name, text, kind) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const atPart = (span, part) => span[0] + part * (span[1] - span[0]);
const partOf = (span, at) => (at - span[0]) / (span[1] - span[0] || 1);
const clamped = (part) => Math.max(0, Math.min(1, part));

// Calls `zoom(across, up)` with parts of the panel under the mouse, for drag, wheel and keys, and `click(panel, x, y)` for a click.
// `panelAt(x, y)` gives the panel at a place of the canvas. A null in place of a part leaves that axis as it is.
function watchCanvas(canvas, frame, { panelAt, zoom, move, reset, click, hover, flat }) {
  let drag = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const parts = (panel, x, y) => [clamped((x - panel.place.left) / panel.place.width),
    clamped(1 - (y - panel.place.top) / panel.place.height)];
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = at(event), panel = panelAt(x, y);
    if (!panel || event.button > 1) return;
    drag = { panel, x, y, isMove: event.shiftKey || event.button === 1 };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!drag) { hover(panelAt(x, y), x, y); return; }
    const isFlat = flat || Math.abs(y - drag.y) < 12;
    frame.style.display = drag.isMove ? "none" : "block";
    frame.style.left = `${Math.min(x, drag.x)}px`;
    frame.style.width = `${Math.abs(x - drag.x)}px`;
    frame.style.top = `${isFlat ? drag.panel.place.top : Math.min(y, drag.y)}px`;
    frame.style.height = `${isFlat ? drag.panel.place.height : Math.abs(y - drag.y)}px`;
  });
  canvas.addEventListener("pointerup", (event) => {
    frame.style.display = "none";
    const begun = drag;
    drag = null;
    if (!begun) return;
    const [x, y] = at(event), [x0, y0] = parts(begun.panel, begun.x, begun.y), [x1, y1] = parts(begun.panel, x, y);
    if (begun.isMove) { move(x0 - x1, flat ? 0 : y0 - y1); return; }
    if (Math.abs(x - begun.x) < 4 && Math.abs(y - begun.y) < 4) { click(begun.panel, x1, y1); return; }
    const isFlat = flat || Math.abs(y - begun.y) < 12;
    if (Math.abs(x - begun.x) >= 4) zoom([Math.min(x0, x1), Math.max(x0, x1)], isFlat ? null : [Math.min(y0, y1), Math.max(y0, y1)]);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; frame.style.display = "none"; });
  canvas.addEventListener("dblclick", reset);
  const around = (centre, factor) => [centre - centre * factor, centre + (1 - centre) * factor];
  canvas.addEventListener("wheel", (event) => {
    const [x, y] = at(event), panel = panelAt(x, y);
    if (!panel || (document.activeElement !== canvas && !event.ctrlKey)) return;
    event.preventDefault();
    const factor = event.deltaY < 0 ? 0.8 : 1.25, [across, up] = parts(panel, x, y);
    zoom(around(across, factor), event.shiftKey && !flat ? around(up, factor) : null);
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      "+": () => zoom(around(0.5, 0.5), null), "=": () => zoom(around(0.5, 0.5), null), "-": () => zoom(around(0.5, 2), null),
      ArrowLeft: () => move(-0.25, 0), ArrowRight: () => move(0.25, 0), ArrowUp: () => move(0, 0.25), ArrowDown: () => move(0, -0.25),
      0: reset, Escape: reset, Home: reset,
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
