// SPDX-License-Identifier: BSL-1.0
// Bars of one figure: a group of bars for each workload, a bar for each arm. Workloads that count different things, such as requests and
// seconds, are in pictures of their own, because an idle second may have a thousand times as many instructions as a request.
const margin = { left: 62, right: 4, top: 20, bottom: 24 };
const pictureHeight = 230;
const barRoom = 0.82; // of a workload's width; the rest is space between workloads
const barWidthMin = 34, barWidthMax = 110; // pixels; the least is that of a value's text
const gapBetweenPictures = 16;
const intervalShareMax = 1.8; // of the largest mean

const isRatio = () => state.shown === "ratios";

// Returns mean, low and high as the picture shows them; null if the value is not known, or if the first arm's value gives no ratio.
function valueOf(workload, number, figure) {
  const cell = cellOf(workload, page.arms[number].name, figure);
  if (!cell || cell.mean === null) return null;
  if (!isRatio()) return cell;
  const first = cellOf(workload, firstArm, figure);
  if (!first || !first.mean) return null;
  const part = (value) => (value === null ? null : value / first.mean);
  return { mean: part(cell.mean), low: part(cell.low), high: part(cell.high) };
}

function ticks(low, high, isLog) {
  if (isLog) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), step = Math.max(1, Math.ceil((last - first) / 6));
    const digits = Math.log10(high / low) < 2 ? [1, 2, 5] : [1], found = [];
    for (let decade = first; decade <= last; decade += step) found.push(...digits.map((digit) => digit * 10 ** decade));
    return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / 5 || 1));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((each) => (high - low) / each <= 6) || power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high * (1 + 1e-9) && found.length < 30; at++) found.push(at * step);
  return found;
}

// Returns the bounds of the axis. With two rounds an interval may be many times as long as the bars, so it does not widen the axis without
// bound: what is outside is cut off.
function spanOf(found) {
  const means = found.map((value) => value.mean), most = intervalShareMax * Math.max(0, ...means);
  const ends = found.flatMap((value) => [value.low, value.high]).filter((value) => value !== null && value >= 0);
  const all = [...means, ...ends.map((value) => Math.min(value, most))], positive = all.filter((value) => value > 0);
  if (state.scale === "log" && positive.length) {
    // On a logarithmic scale a ratio's bar begins at 1, and goes down for less.
    if (isRatio()) return [Math.min(1, 0.75 * Math.min(...positive)), Math.max(1.2, ...positive.map((value) => value * 1.2))];
    return [10 ** Math.floor(Math.log10(Math.min(...positive) * 0.9)), Math.max(...positive) * 1.2];
  }
  const high = Math.max(0, ...all);
  return [Math.min(0, ...all), high > 0 ? high * 1.08 : 1];
}

function rangeText(cell) {
  const isKnown = cell.low !== null && cell.high !== null && cell.low !== cell.high;
  return isKnown ? `, 95 % interval ${number(cell.low)} to ${number(cell.high)}` : "";
}

function paintBars() {
  const figure = page.figures.find((each) => each.name === state.figure), readout = byId("bars-readout"), place = byId("bars");
  if (!figure) { place.textContent = "No figure was measured."; return; }
  const workloads = chosenWorkloads(), marks = [];
  const found = new Map(workloads.map((workload) => [workload, page.arms.map((_, at) => valueOf(workload.name, at, figure.name))]));
  const drawn = workloads.filter((each) => found.get(each).some((value) => value));
  const groups = figure.unit.includes("@") ? byUnit(drawn) : new Map(drawn.length ? [["", drawn]] : []);
  const sizes = sizesOf(widthOf(place), [...groups.values()]);
  const parts = [...groups].map(([unit, members]) => groupOfBars(figure, unit, members, found, sizes, marks));
  place.replaceChildren(...parts, ...notesOf(figure, workloads, found));
  byId("bars-title").textContent = `${figure.title}: ${isRatio() ? `ratio to ${firstArm}` : "values"}, ${coresText()}`;
  readout.textContent = explanationOf(figure);
  readable(marks, readout);
}

function explanationOf(figure) {
  const better = { low: "Less is better.", high: "More is better." }[figure.better] || "";
  const unit = isRatio() ? `Each bar is the arm's value divided by the value of ${firstArm}: 2 is twice as much.` : unitText(figure);
  const scale = state.scale === "log" ? isRatio() ? "The scale is logarithmic, and bars begin at 1." : "The scale is logarithmic." : "";
  return [unit, better, scale].filter((each) => each).join(" ");
}

function unitText(figure) {
  const unit = unitAlone(figure.unit);
  if (!figure.unit.includes("@")) return unit ? `Values are in ${unit}.` : "";
  return `Values are ${unit ? `${unit} ` : ""}for one request, round trip or second, as in the headings.`;
}

// Returns the sizes in pixels that all pictures share. Lines of one group have nearly equal numbers of workloads, and fill the width.
function sizesOf(total, groups) {
  const wide = total - margin.left - margin.right, longest = Math.max(1, ...groups.map((each) => each.length));
  const inLineMax = Math.max(1, Math.floor((wide * barRoom) / (page.arms.length * barWidthMin)));
  const inLine = Math.ceil(longest / Math.ceil(longest / inLineMax));
  return { total, inLine, group: Math.min(wide / inLine, (page.arms.length * barWidthMax) / barRoom) };
}

// Returns the pictures of all workloads of one unit, which have the same scale, below a sentence with the ratios of all of them.
function groupOfBars(figure, unit, members, found, sizes, marks) {
  const there = members.flatMap((each) => found.get(each)).filter((value) => value), [low, high] = spanOf(there);
  const axis = { low, high, isLog: state.scale === "log" && there.some((value) => value.mean > 0) };
  const inLine = Math.ceil(members.length / Math.ceil(members.length / sizes.inLine));
  const width = Math.min(sizes.total, Math.max(320, margin.left + margin.right + inLine * sizes.group));
  const part = html("div", "part");
  // A share of the width, so that the same picture fits on paper.
  part.style.width = `${Math.floor((1e4 * (width - gapBetweenPictures / 2)) / sizes.total) / 100}%`;
  if (width > sizes.total - gapBetweenPictures) part.style.width = "100%";
  if (unit) part.append(html("h3", "", `for each ${unit}`));
  part.append(...summaryOf(figure, members));
  for (let at = 0; at < members.length; at += inLine) {
    part.append(lineOfBars(figure, members.slice(at, at + inLine), found, axis, { width, group: sizes.group }, marks));
  }
  return part;
}

// Returns a paragraph with each arm's ratio to the first arm: the geometric mean over the workloads, the least and the largest.
function summaryOf(figure, members) {
  const parts = page.arms.slice(1).flatMap(({ name }, before) => {
    const ratios = members.map((each) => {
      const cell = cellOf(each.name, name, figure.name), first = cellOf(each.name, firstArm, figure.name);
      return cell && first && first.mean > 0 ? cell.mean / first.mean : 0;
    }).filter((ratio) => ratio > 0);
    if (!ratios.length) return [];
    const mean = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
    const range = `(${ratioText(Math.min(...ratios))} to ${ratioText(Math.max(...ratios))}, ${ratios.length} rows)`;
    const key = svg("svg", { class: "key", viewBox: "0 0 38 14", "aria-hidden": true });
    key.append(svg("rect", { class: "column", width: 38, height: 14, fill: `url(#arm${before + 1})` }));
    return [html("span", "sum", key, ` ${name}: `, html("strong", "", `${ratioText(mean)} times ${firstArm}`),
      ratios.length > 1 ? ` ${range}` : "")];
  });
  if (!parts.length) return [];
  const made = html("p", "summary", ...parts);
  made.title = "geometric mean over the rows of this group, least and largest";
  return [made];
}

// Returns sentences about rows and arms without a bar.
function notesOf(figure, workloads, found) {
  const noRatio = [], unknown = [], allUnknown = [];
  for (const workload of workloads) {
    const cells = page.arms.map(({ name }) => cellOf(workload.name, name, figure.name));
    const known = page.arms.filter((_, at) => cells[at] && cells[at].mean !== null);
    if (!known.length) { allUnknown.push(labelOf(workload)); continue; }
    const lacking = page.arms.filter((each) => !known.includes(each)).map((each) => each.name);
    if (lacking.length) unknown.push(`${labelOf(workload)} (${lacking.join(", ")})`);
    if (!isRatio() || found.get(workload).some((value) => value)) continue;
    const values = known.map((each) => `${each.name} ${number(cellOf(workload.name, each.name, figure.name).mean)}`);
    const unit = counted(figure.unit, workload.unit);
    noRatio.push(`${labelOf(workload)}: ${values.join(", ")}${unit ? ` (${unit})` : ""}.`);
  }
  const texts = [];
  if (noRatio.length) texts.push(`No ratio, because the value of ${firstArm} is 0 or not known: ${noRatio.join(" ")}`);
  if (unknown.length) texts.push(`Not known: ${unknown.join("; ")}.`);
  if (allUnknown.length) texts.push(`Without this figure: ${allUnknown.join(", ")}.`);
  return texts.length ? [html("div", "note", ...texts.map((text) => html("p", "", text)))] : [];
}

// Returns a picture of some workloads, and appends its bars to `marks`. An arm without a value takes no room.
function lineOfBars(figure, workloads, found, { low, high, isLog }, { width, group }, marks) {
  const tall = pictureHeight - margin.top - margin.bottom, bottom = pictureHeight - margin.bottom;
  const place = (value) => (isLog ? Math.log10(Math.max(value, low) / low) / Math.log10(high / low) : (value - low) / (high - low));
  const yOf = (value) => margin.top + (1 - place(value)) * tall, zero = yOf(!isLog ? 0 : isRatio() ? 1 : low);
  const line = (y, name = "axis") => svg("line", { class: name, x1: margin.left, x2: width - margin.right, y1: y, y2: y });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${pictureHeight}`, "aria-label": figure.title });
  for (const value of ticks(low, high, isLog)) {
    const label = svg("text", { class: "dim", x: margin.left - 6, y: yOf(value) + 4, "text-anchor": "end" },
      Math.abs(value) >= 1e6 ? shortNumber(value) : number(value));
    picture.append(line(yOf(value)), label);
  }
  if (isRatio() && high >= 1) picture.append(line(yOf(1), "axis base"));
  const each = (group * barRoom) / page.arms.length;
  workloads.forEach((workload, at) => {
    const middleOfGroup = margin.left + (at + 0.5) * group;
    const label = svg("text", { class: "name", x: middleOfGroup, y: bottom + 16, "text-anchor": "middle" },
      wordsOf(labelOf(workload), group));
    label.append(svg("title", {}, workload.about || workload.name));
    picture.append(label);
    const present = found.get(workload).map((value, armAt) => ({ value, armAt })).filter(({ value }) => value);
    present.forEach(({ value, armAt }, slot) => {
      const x = middleOfGroup + (slot - present.length / 2) * each, mark = svg("g", {}, ...barOf(value, armAt, x, each));
      picture.append(mark);
      marks.push({ element: mark, text: barText(figure, workload, armAt, value) });
    });
  });
  picture.append(line(zero));
  return picture;

  function barOf(value, armAt, x, wide) {
    const top = yOf(Math.min(high, Math.max(value.mean, low))), height = Math.abs(zero - top), middle = x + (wide - 2) / 2;
    const made = [];
    const y = Math.min(top, zero);
    if (height > 0) made.push(svg("rect", { class: "column", x, width: Math.max(1, wide - 2), y, height, fill: `url(#arm${armAt})` }));
    let highest = Math.min(top, zero);
    if (value.low !== null && value.high !== null && value.high > value.low) {
      const half = Math.min(7, wide / 4), cut = (end) => Math.min(high, Math.max(low, end));
      // An end outside of the axis has no cap.
      const caps = [value.low, value.high].filter((end) => end === cut(end)).map((end) => `M${middle - half} ${yOf(end)}h${2 * half}`);
      made.push(svg("path", { class: "error", d: `M${middle} ${yOf(cut(value.low))}V${yOf(cut(value.high))}${caps.join("")}` }));
      highest = Math.min(highest, yOf(cut(value.high)));
    }
    const text = isRatio() ? ratioText(value.mean) : shortNumber(value.mean);
    const isDown = top > zero, lowest = value.low === null ? top : Math.max(top, yOf(Math.max(low, value.low)));
    made.push(svg("text", { class: "value", x: middle, y: isDown ? lowest + 12 : highest - 4, "text-anchor": "middle" }, text));
    return made;
  }
}

function barText(figure, workload, armAt, value) {
  const name = page.arms[armAt].name, unit = counted(figure.unit, workload.unit);
  const measured = cellOf(workload.name, name, figure.name).mean;
  const said = isRatio() ? `${number(value.mean)} times ${firstArm}` : `${number(value.mean)} ${unit}`.trim();
  const absolute = isRatio() ? `; the value is ${number(measured)} ${unit}`.trimEnd() : "";
  return `${workload.name}, ${name}: ${figure.title} ${said}${rangeText(value)}${absolute}`;
}
