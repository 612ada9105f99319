// SPDX-License-Identifier: BSL-1.0
// Lines of `inspect`: one line for small objects, one line a property for large ones, columns for long arrays.
//
// Node's rule, which programs see in their logs: an object goes on one line if it has at most `compact` inner levels and fits
// `breakLength`. An array of more than six short items becomes columns, up to 15 of them, in a shape about 2.5 times as wide as high.
'use strict';

const { width } = require('_inspect_text');

const separatorColumns = 2; // ", "

function fits(context, output, start, base) {
  let columns = output.length + start;
  if (columns + output.length > context.breakLength) return false;
  for (const item of output) columns += item.length;
  return columns <= context.breakLength && (base === '' || !base.includes('\n'));
}

/// Joins the parts of one object. `mayJoin` is false for arrays that are in columns already.
function layOut(context, output, base, braces, level, mayJoin) {
  const head = base ? `${base} ` : '';
  if (context.compact !== true) {
    if (typeof context.compact === 'number' && context.compact >= 1 && mayJoin && context.currentDepth - level < context.compact) {
      const start = output.length + context.indentation + braces[0].length + base.length + 10;
      if (fits(context, output, start, base)) {
        const joined = output.join(', ');
        if (!joined.includes('\n')) return `${head}${braces[0]} ${joined} ${braces[1]}`;
      }
    }
    const line = `\n${' '.repeat(context.indentation)}`;
    return `${head}${braces[0]}${line}  ${output.join(`,${line}  `)}${line}${braces[1]}`;
  }
  if (fits(context, output, 0, base)) return `${braces[0]}${base ? ` ${base}` : ''} ${output.join(', ')} ${braces[1]}`;
  const line = `\n${' '.repeat(context.indentation)}`;
  const first = base === '' && braces[0].length === 1 ? ' ' : `${base ? ` ${base}` : ''}\n${line.slice(1)}  `;
  return `${braces[0]}${first}${output.join(`,${line}  `)} ${braces[1]}`;
}

/// Puts the items of a long array into columns; returns `output` itself if the items are too long or too unequal.
function groupItems(context, output, value) {
  // The note "... 5 more items" stays on a line of its own. Named properties follow the items and are grouped with them.
  const hasNote = context.maxArrayLength < output.length;
  const count = hasNote ? output.length - 1 : output.length;
  const widths = output.slice(0, count).map((item) => width(item));
  const longest = Math.max(...widths);
  const total = widths.reduce((sum, columns) => sum + columns + separatorColumns, 0);
  const cell = longest + separatorColumns;
  if (cell * 3 + context.indentation >= context.breakLength) return output;
  if (total / cell <= 5 && longest > 6) return output;

  const bias = Math.sqrt(cell - total / output.length);
  const usual = Math.max(cell - 3 - bias, 1);
  const columns = Math.min(
    Math.round(Math.sqrt(2.5 * usual * count) / usual),
    Math.floor((context.breakLength - context.indentation) / cell),
    context.compact * 4,
    15,
  );
  if (columns <= 1) return output;
  const columnWidths = [];
  for (let column = 0; column < columns; column++) {
    let widest = 0;
    for (let index = column; index < count; index += columns) widest = Math.max(widest, widths[index]);
    columnWidths.push(widest + separatorColumns);
  }
  const numeric = value !== undefined && output.every((_, index) => typeof value[index] === 'number' || typeof value[index] === 'bigint');
  const lines = [];
  for (let start = 0; start < count; start += columns) {
    const end = Math.min(start + columns, count);
    let line = '';
    for (let index = start; index < end; index++) {
      const last = index === end - 1;
      const text = last ? output[index] : `${output[index]}, `;
      const columnsWanted = columnWidths[index - start] + output[index].length - widths[index] - (last ? separatorColumns : 0);
      if (numeric) line += text.padStart(columnsWanted, ' ');
      else line += last ? text : text.padEnd(columnsWanted, ' ');
    }
    lines.push(line);
  }
  if (hasNote) lines.push(output[count]);
  return lines;
}

module.exports = { layOut, groupItems };
