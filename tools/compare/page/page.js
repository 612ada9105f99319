// SPDX-License-Identifier: BSL-1.0
// The choices of a reader, and when pictures are drawn: at the begin, after a choice, for another width, and for paper.
function paint() {
  paintBars();
  paintLayers();
  document.querySelectorAll("[data-cores]").forEach((each) => { each.hidden = !isChosen(each.dataset.cores); });
  byId("tables-title").textContent = `All figures, ${coresText()}`;
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const id of Object.keys(state)) if (given.has(id)) state[id] = given.get(id);
  byId("figure").append(...page.figures.map(({ name, title, unit }) => {
    return new Option(unitAlone(unit) ? `${title} (${unitAlone(unit)})` : title, name);
  }));
  byId("ratios").textContent = `ratios to ${firstArm}`;
  byId("cores").append(...coreNumbers.map((each) => new Option(`${each}`, `${each}`)), new Option("all", "all"));
  for (const id of Object.keys(state)) {
    if (![...byId(id).options].some((each) => each.value === state[id])) state[id] = byId(id).value;
    byId(id).value = state[id];
    byId(id).addEventListener("change", () => { choose(id, byId(id).value); });
  }
  // One picture holds the patterns of all others. It has no size, because patterns of a hidden picture are not drawn.
  const hidden = { width: 0, height: 0, style: "position:absolute;width:0;height:0", "aria-hidden": true };
  document.body.append(svg("svg", hidden, svg("defs", {}, ...patterns())));
  document.querySelectorAll(".arms svg.key").forEach((key, at) => {
    key.replaceChildren(svg("rect", { class: "column", width: 38, height: 14, fill: `url(#arm${at})` }));
  });
  paint();
  let width = widthOf(byId("bars"));
  addEventListener("resize", () => {
    if (isPrinted || widthOf(byId("bars")) === width) return;
    width = widthOf(byId("bars"));
    paint();
  });
  const print = (is) => { isPrinted = is; paint(); };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  document.documentElement.dataset.drawn = "yes";
}

function choose(id, value) {
  state[id] = value;
  byId(id).value = value;
  paint();
  const made = new URLSearchParams(state);
  try { history.replaceState(null, "", `#${made}`); } catch { /* Some browsers refuse this for local files. */ }
}

try { begin(); } catch (error) { document.documentElement.dataset.error = String(error && error.stack ? error.stack : error); throw error; }
