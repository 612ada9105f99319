// SPDX-License-Identifier: BSL-1.0
// The instructions of each arm by layer: a picture for each workload, a bar for each arm.
const layerColours = ["#16205c", "#d55e00", "#3199c4", "#f0b429", "#009e73", "#b0579a", "#9fdcb8", "#777777", "#8a4b08", "#bcd9f5"];
const darkColours = ["#16205c", "#8a4b08", "#777777", "#b0579a", "#009e73", "#d55e00"];
const layerBarHeight = 18, layerRowHeight = 22, titleHeight = 20;
const letterWidth = 6.6;
const columnWidthMin = 640; // pixels; a wider page has two columns of pictures

const colourOf = (layer) => layerColours[layer % layerColours.length];
const layerOf = (workload, each, layer) => {
  const cell = cellOf(workload, each, `instructions: ${layer}`);
  return cell && cell.mean > 0 ? cell.mean : 0;
};
const sum = (parts) => parts.reduce((a, b) => a + b, 0);

const partsOf = (workload, each) => page.layers.map((layer) => layerOf(workload, each, layer));

// Returns the arms of a workload that have layers. An arm that executes nothing has a row without a bar, if another arm has layers.
function layerRows(workload) {
  const rows = page.arms.map((each) => ({ each, parts: partsOf(workload.name, each.name) }));
  if (!rows.some(({ parts }) => sum(parts) > 0)) return [];
  return rows.filter(({ each, parts }) => sum(parts) > 0 || (cellOf(workload.name, each.name, "instructions") || {}).mean === 0);
}

function paintLayers() {
  const place = byId("layers"), marks = [];
  const shown = chosenWorkloads().map((workload) => ({ workload, rows: layerRows(workload) })).filter(({ rows }) => rows.length);
  byId("layers-part").hidden = !shown.length;
  if (!shown.length) return;
  byId("layers-title").textContent = `Instructions by layer, ${coresText()}`;
  byId("layers-legend").replaceChildren(...page.layers.map((layer, at) => {
    const key = html("span", "key");
    key.style.background = colourOf(at);
    return html("span", "", key, layer);
  }));
  const total = widthOf(place), columns = total >= 2 * columnWidthMin && shown.length > 1 ? 2 : 1;
  const width = total / columns - (columns > 1 ? gapBetweenPictures : 0);
  const parts = [...byUnit(shown.map(({ workload }) => workload))].map(([unit, members]) => {
    const ofUnit = shown.filter(({ workload }) => members.includes(workload));
    const most = Math.max(...ofUnit.flatMap(({ rows }) => rows.map((row) => sum(row.parts))));
    const grid = html("div", `grid columns${columns}`, ...ofUnit.map(({ workload, rows }) => picture(workload, rows, most)));
    return html("div", "", ...(unit ? [html("h3", "", `for each ${unit}`)] : []), grid);
  });
  place.replaceChildren(...parts);
  const readout = byId("layers-readout");
  readout.textContent = {
    row: "Each row's bars are scaled to that row's largest arm. The text beside a bar has its total.",
    share: "Each bar is the whole of its arm. The text beside a bar has its total.",
    one: "All bars for the same unit have one scale.",
  }[state.bars_of_layers];
  readable(marks, readout);

  function picture(workload, rows, most) {
    const labels = Math.min(190, 12 + letterWidth * Math.max(...page.arms.map((each) => each.name.length)));
    const totals = rows.map((row) => sum(row.parts)), largest = Math.max(...totals), first = rows[0].each.name === firstArm && totals[0];
    const texts = totals.map((each, at) => {
      const isCompared = first && rows[at].each.name !== firstArm;
      return number(each) + (isCompared ? ` (${ratioText(each / first)} times ${firstArm})` : "");
    });
    const wide = width - labels - letterWidth * Math.max(...texts.map((each) => each.length)) - 12;
    const made = svg("svg", { "aria-label": `instructions by layer, ${workload.name}`,
      viewBox: `0 0 ${width} ${titleHeight + rows.length * layerRowHeight + 4}` });
    const title = svg("text", { class: "name", x: 0, y: 14, "font-weight": 600 }, labelOf(workload));
    if (workload.about) title.append(svg("tspan", { class: "dim", "font-weight": 400 }, `  ${workload.about}`));
    made.append(title);
    rows.forEach(({ each, parts }, at) => {
      const y = titleHeight + at * layerRowHeight, name = wordsOf(each.name, labels - 8);
      made.append(svg("text", { class: "dim", x: labels - 8, y: y + 13, "text-anchor": "end" }, name));
      const scale = { row: largest, share: totals[at], one: most }[state.bars_of_layers] || 1;
      let x = labels;
      parts.forEach((part, layer) => {
        if (!part) return;
        const mark = layerMark(layer, x, y, (part / scale) * wide);
        made.append(mark);
        const share = number((100 * part) / totals[at]);
        const said = `${number(part)} instructions, ${share} %`;
        marks.push({ element: mark, text: `${workload.name}, ${each.name}, ${page.layers[layer]}: ${said}` });
        x += (part / scale) * wide;
      });
      made.append(svg("text", { class: "total", x: x + 6, y: y + 13 }, texts[at]));
    });
    return made;
  }
}

function layerMark(layer, x, y, width) {
  const colour = colourOf(layer);
  const mark = svg("g", {}, svg("rect", { class: "column", x, y, width, height: layerBarHeight, fill: colour }));
  if (width > 6.8 * page.layers[layer].length + 6) {
    mark.append(svg("text", { x: x + 4, y: y + 13, style: `fill:${darkColours.includes(colour) ? "#fff" : "#000"}` }, page.layers[layer]));
  }
  return mark;
}
