// SPDX-License-Identifier: BSL-1.0
// The reader's choices: axes, colour, panels, filters and the legend, and the page's address, which keeps them.
"use strict";

const firstOf = (...names) => names.find((name) => quantities.has(name)) || page.quantities[0].name;
const scaleOfQuantity = (name) => (quantities.has(name) && quantities.get(name).number ? quantities.get(name).scale : "linear");
const usual = {
  x: firstOf("energy_uj", "itr_us", "power_w"), y: firstOf("p99_us", "p50_us", "mean_us"), colour: quantities.has("arm") ? "arm" : "",
  group: "", mode: "points",
};
const state = { ...usual, x_scale: "", y_scale: "", view: { x: null, y: null }, filters: new Map() };

function fillChoices() {
  const numbers = page.quantities.filter((each) => each.number || each.values);
  for (const id of ["x", "y"]) byId(id).append(...numbers.map(({ name, label }) => option(name, label)));
  byId("colour").append(option("", "number of runs"), ...numbers.map(({ name, label }) => option(name, label)));
  byId("group").append(option("", "(one panel)"), ...page.filters.filter(({ values }) => values).map(({ name }) => option(name,
    quantities.get(name).title)));
  for (const id of ["x", "y", "colour", "group", "mode", "x_scale", "y_scale"]) {
    byId(id).addEventListener("change", () => choose(id, byId(id).value));
  }
  byId("whole").addEventListener("click", showAll);
  byId("choices").addEventListener("submit", (event) => event.preventDefault());
}

const isHistogram = () => state.mode === "count" || state.mode === "cumulative";
const scaleNow = (axis) => state[`${axis}_scale`] || scaleOfQuantity(state[axis]);

function showChoices() {
  for (const id of ["x", "y", "colour", "group", "mode"]) {
    if (![...byId(id).options].some(({ value }) => value === state[id])) state[id] = usual[id];
    byId(id).value = state[id];
  }
  for (const axis of ["x", "y"]) {
    byId(`${axis}_scale`).value = scaleNow(axis);
    byId(`${axis}_scale`).disabled = !quantities.get(state[axis]).number;
  }
  byId("y").disabled = byId("y_scale").disabled = isHistogram();
}

function choose(id, value) {
  state[id] = value;
  for (const axis of ["x", "y"]) {
    if (id === axis) state[`${axis}_scale`] = "";
    if (id === axis || id === `${axis}_scale`) state.view[axis] = null;
  }
  showChoices();
  return draw();
}

function showAll() {
  state.view = { x: null, y: null };
  return draw();
}

// ---- filters ----

const filtersText = () => (state.filters.size ? JSON.stringify([...state.filters.values()]) : "");

// Sets the allowed values of a quantity; all of them: no filter.
function allow(name, values, all) {
  if (values.length === all.length) state.filters.delete(name); else state.filters.set(name, { name, values });
  showFilters();
  return draw();
}

function bound(name, low, high) {
  if (low === null && high === null) state.filters.delete(name); else state.filters.set(name, { name, low, high });
  showFilters();
  return draw();
}

const allowed = (name, all) => (state.filters.get(name) && state.filters.get(name).values ? state.filters.get(name).values : all);

function fillFilters() {
  byId("filters-list").replaceChildren(...page.filters.flatMap(({ name, values }) => {
    const title = element("span", "", quantities.get(name).label);
    if (!values || (values.length > 12 && quantities.get(name).number)) return [title, rangeOf(name)];
    const boxes = values.map((value) => {
      const box = element("input");
      box.type = "checkbox";
      box.dataset.filter = name;
      box.dataset.value = JSON.stringify(value);
      box.addEventListener("change", () => {
        const now = allowed(name, values);
        allow(name, box.checked ? values.filter((each) => each === value || now.includes(each)) : now.filter((each) => each !== value),
          values);
      });
      return element("label", "", box, ` ${valueText(value)}`);
    });
    return [title, element("span", "values", ...boxes)];
  }));
}

function rangeOf(name) {
  const ends = ["low", "high"].map((end) => {
    const field = element("input");
    field.type = "number";
    field.step = "any";
    field.dataset.range = name;
    field.dataset.end = end;
    field.addEventListener("change", () => {
      const [low, high] = ends.map((each) => (each.value === "" ? null : Number(each.value)));
      bound(name, low, high);
    });
    return field;
  });
  return element("span", "", "from ", ends[0], " to ", ends[1]);
}

function showFilters() {
  document.querySelectorAll("[data-filter]").forEach((box) => {
    const filter = state.filters.get(box.dataset.filter);
    box.checked = !filter || !filter.values || filter.values.includes(JSON.parse(box.dataset.value));
  });
  document.querySelectorAll("[data-range]").forEach((field) => {
    const filter = state.filters.get(field.dataset.range), value = filter ? filter[field.dataset.end] : null;
    field.value = value === null || value === undefined ? "" : value;
  });
  const count = state.filters.size;
  byId("filters-said").textContent = count ? `(${[...state.filters.keys()].map((name) => quantities.get(name).title).join(", ")})` : "";
}

// ---- legend ----

function showLegend(about, colouring, look) {
  const place = byId("legend");
  const bar = (low, high, title) => {
    const ramp = element("canvas");
    ramp.width = 256;
    ramp.height = 1;
    const context = ramp.getContext("2d");
    look.ramp.forEach((colour, at) => { context.fillStyle = css(colour); context.fillRect(at, 0, 1, 1); });
    return [element("span", "", `${title} ${low}`, ramp, high)];
  };
  if (colouring.kind === "category") {
    const filterable = page.filters.find(({ name, values }) => name === state.colour && values);
    place.replaceChildren(element("span", "note", `${labelOf(state.colour)}:`), ...about.categories.map((value, at) => {
      const key = element("span", "key");
      key.style.background = css(colouring.colours[at]);
      if (!filterable) return element("span", "", key, valueText(value));
      const made = element("button", "", key, valueText(value));
      made.type = "button";
      const now = allowed(state.colour, filterable.values);
      made.className = now.includes(value) ? "" : "off";
      made.title = "show or hide";
      made.addEventListener("click", () => {
        const others = now.includes(value) ? now.filter((each) => each !== value) : filterable.values.filter((each) => each === value
          || now.includes(each));
        allow(state.colour, others.length ? others : filterable.values, filterable.values);
      });
      return made;
    }));
  } else if (colouring.kind === "mean") {
    place.replaceChildren(...bar(number(colouring.low), number(colouring.high), labelOf(state.colour)));
  } else if (about.kind === "cells") place.replaceChildren(...bar("1", "most", "runs in a cell:"));
  else place.replaceChildren();
}

// ---- the address ----

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const id of [...Object.keys(usual), "x_scale", "y_scale"]) if (given.has(id)) state[id] = given.get(id);
  for (const axis of ["x", "y"]) {
    const span = (given.get(`${axis}_span`) || "").split(",").map(Number);
    state.view[axis] = span.length === 2 && span.every(Number.isFinite) && span[0] < span[1] ? span : null;
  }
  try {
    for (const each of JSON.parse(given.get("filters") || "[]")) if (quantities.has(each.name)) state.filters.set(each.name, each);
  } catch { /* An address that was cut off has no filters. */ }
}

function writeAddress() {
  const made = new URLSearchParams();
  for (const id of Object.keys(usual)) if (state[id] !== usual[id]) made.set(id, state[id]);
  for (const axis of ["x", "y"]) {
    if (state[`${axis}_scale`]) made.set(`${axis}_scale`, state[`${axis}_scale`]);
    if (state.view[axis]) made.set(`${axis}_span`, state.view[axis].map((value) => Number(value.toPrecision(9))).join(","));
  }
  if (state.filters.size) made.set("filters", filtersText());
  const text = made.toString();
  try { history.replaceState(null, "", text ? `#${text}` : location.pathname); } catch { /* Too many changes within a moment. */ }
}
