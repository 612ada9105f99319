// SPDX-License-Identifier: BSL-1.0
// Errors in `inspect`: the stack, with the class name and the code in front.
//
// In some engines `stack` begins with "Name: message", in QuickJS it has the frames alone. Both give the same text here.
'use strict';

function headline(error) {
  const { name } = error;
  const message = String(error.message ?? '');
  const shown = typeof name === 'string' && name !== '' ? name : 'Error';
  return message === '' ? shown : `${shown}: ${message}`;
}

/// The stack with its headline.
function stackText(error) {
  const stack = typeof error.stack === 'string' ? error.stack : '';
  const lines = stack.split('\n').filter((line) => line !== '');
  const first = lines.findIndex((line) => /^\s+at /.test(line));
  const isFramesOnly = first === 0;
  if (stack !== '' && !isFramesOnly) return stack.trimEnd();
  const head = headline(error);
  if (first === -1) return `[${head}]`;
  return `${head}\n${lines.join('\n')}`;
}

function errorBase(context, error, name, tag) {
  let text = stackText(error);
  // The class name, if the headline does not show it: class Foo extends Error has the name "Error".
  const shownName = typeof error.name === 'string' ? error.name : 'Error';
  if (name !== null && name !== shownName && text.startsWith(shownName) && !text.slice(0, text.indexOf('\n') >>> 0).includes(name)) {
    const rest = text.slice(shownName.length);
    text = name.includes(shownName) ? `${name}${rest}` : `${name} [${shownName}]${rest}`;
  }
  if (tag !== '' && tag !== name) text = text.replace(/^(\[?)([^:\n]*)/, `$1$2 [${tag}]`);
  if (!/^\s+at /m.test(text) && !text.startsWith('[')) text = `[${text}]`;
  if (context.indentation !== 0) text = text.replaceAll('\n', `\n${' '.repeat(context.indentation)}`);
  return text;
}

/// The properties to show: all but those that the stack shows already. A cause is shown although it is not enumerable.
function errorKeys(error, keys) {
  const stack = String(error.stack);
  const shown = keys.filter((key) => {
    if (key !== 'name' && key !== 'message' && key !== 'stack') return true;
    return key !== 'stack' && !stack.includes(String(error[key])) && !headline(error).includes(String(error[key]));
  });
  if (Object.hasOwn(error, 'cause') && !shown.includes('cause')) shown.push('cause');
  if (Array.isArray(error.errors) && !shown.includes('errors')) shown.push('errors');
  return shown;
}

module.exports = { errorBase, errorKeys, headline, stackText };
