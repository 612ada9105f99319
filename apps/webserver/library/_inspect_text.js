// SPDX-License-Identifier: BSL-1.0
// Quoted strings for `inspect`, and the width of text on a terminal.
'use strict';

const short = { '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r', '\\': '\\\\' };
const special = /[\x00-\x1f\x27\x5c\x7f-\x9f]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;
const specialAll = new RegExp(special.source, 'g');

function escape(character, quoteMark) {
  if (character === "'" && quoteMark !== "'") return character;
  if (character === quoteMark) return `\\${character}`;
  if (short[character]) return short[character];
  const code = character.charCodeAt(0);
  if (code > 0xff) return `\\u${code.toString(16)}`;
  return `\\x${code.toString(16).toUpperCase().padStart(2, '0')}`;
}

/// The string in single quotes; in double quotes or backticks if that saves escapes.
function quote(text) {
  if (!special.test(text)) return `'${text}'`;
  let mark = "'";
  if (text.includes("'")) {
    if (!text.includes('"')) mark = '"';
    else if (!text.includes('`') && !text.includes('${')) mark = '`';
  }
  return mark + text.replace(specialAll, (character) => escape(character, mark)) + mark;
}

/// Columns of a terminal: wide characters count as two, combining marks as none.
function width(text) {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const character of text.normalize('NFC')) {
    const code = character.codePointAt(0);
    if (code < 32 || (code >= 0x7f && code < 0xa0) || /\p{M}/u.test(character) || code === 0x200d || code === 0x200b) continue;
    const wide =
      code >= 0x1100 &&
      (code <= 0x115f ||
        (code >= 0x2e80 && code <= 0xa4cf && code !== 0x303f) ||
        (code >= 0xac00 && code <= 0xd7a3) ||
        (code >= 0xf900 && code <= 0xfaff) ||
        (code >= 0xfe30 && code <= 0xfe6f) ||
        (code >= 0xff00 && code <= 0xff60) ||
        (code >= 0xffe0 && code <= 0xffe6) ||
        (code >= 0x1f300 && code <= 0x1f64f) ||
        (code >= 0x1f900 && code <= 0x1f9ff) ||
        (code >= 0x20000 && code <= 0x3fffd));
    columns += wide ? 2 : 1;
  }
  return columns;
}

module.exports = { quote, width };
