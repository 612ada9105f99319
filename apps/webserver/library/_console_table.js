// SPDX-License-Identifier: BSL-1.0
// console.table: an array or object of rows, drawn with lines.
'use strict';

const { inspect } = require('util');
const { width } = require('_inspect_text');

const show = (value) =>
  inspect(value, { maxArrayLength: 3, breakLength: Infinity, depth: value !== null && typeof value === 'object' ? 0 : 2 });

const cell = (text, columns) => ` ${text}${' '.repeat(columns - width(text) - 1)}`;

function draw(head, rows) {
  const widths = head.map((title, column) => Math.max(width(title), ...rows.map((row) => width(row[column]))) + 2);
  const bars = widths.map((columns) => '─'.repeat(columns));
  const line = (cells) => `│${cells.map((text, column) => cell(text, widths[column])).join('│')}│`;
  const lines = [`┌${bars.join('┬')}┐`, line(head), `├${bars.join('┼')}┤`, ...rows.map(line), `└${bars.join('┴')}┘`];
  return lines.join('\n');
}

function table(data, chosen) {
  const isMap = data instanceof Map;
  const isSet = data instanceof Set;
  const entries = isMap || isSet ? [...data.values()].map((value, index) => [index, value]) : Object.entries(data);
  const columns = chosen ? [...chosen] : [];
  let hasValues = false;
  for (const [, row] of entries) {
    if (row === null || typeof row !== 'object') hasValues = true;
    else if (!chosen) for (const key of Object.keys(row)) if (!columns.includes(key)) columns.push(key);
  }
  const head = [isMap || isSet ? '(iteration index)' : '(index)', ...columns];
  if (isMap) head.splice(1, 0, 'Key');
  if (hasValues) head.push('Values');
  const keys = isMap ? [...data.keys()] : [];
  const rows = entries.map(([index, row]) => {
    const isObject = row !== null && typeof row === 'object';
    const cells = [`${index}`];
    if (isMap) cells.push(show(keys[index]));
    for (const column of columns) cells.push(isObject && Object.hasOwn(row, column) ? show(row[column]) : '');
    if (hasValues) cells.push(isObject ? '' : show(row));
    return cells;
  });
  return draw(head, rows);
}

module.exports = { table };
