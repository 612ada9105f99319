// SPDX-License-Identifier: BSL-1.0
// inspect: a value as text for people.
//
// The text is that of Node for the values that programs log: plain and class objects, arrays, maps, sets, typed arrays, functions, errors,
// boxed values, circular references. Colours are not supported; the option is accepted. Of a proxy,
// the target is shown.
'use strict';

const { isError, isPromise, isProxy, getPromiseDetails, proxyDetails, typedArrayName, classOf } = require('_types');
const { quote } = require('_inspect_text');
const { layOut, groupItems } = require('_inspect_layout');

const custom = Symbol.for('nodejs.util.inspect.custom');

const defaultOptions = {
  showHidden: false,
  depth: 2,
  colors: false,
  customInspect: true,
  showProxy: false,
  maxArrayLength: 100,
  maxStringLength: 10000,
  breakLength: 80,
  compact: 3,
  sorted: false,
  getters: false,
  numericSeparator: false,
};

function inspect(value, options, ...rest) {
  const context = { ...defaultOptions, seen: [], circular: new Map(), indentation: 0, currentDepth: 0, stylize: (text) => text };
  if (typeof options === 'boolean') {
    // The older form: inspect(value, showHidden, depth, colors).
    context.showHidden = options;
    if (rest.length > 0) [context.depth] = rest;
  } else if (options) {
    for (const key of Object.keys(options)) if (key in defaultOptions || key === 'stylize') context[key] = options[key];
  }
  if (context.depth === null) context.depth = Infinity;
  if (context.maxArrayLength === null) context.maxArrayLength = Infinity;
  if (context.maxStringLength === null) context.maxStringLength = Infinity;
  context.userOptions = options;
  return format(context, value, 0);
}

function formatNumber(value) {
  return Object.is(value, -0) ? '-0' : `${value}`;
}

function formatPrimitive(context, value) {
  switch (typeof value) {
    case 'string': {
      let trailer = '';
      if (value.length > context.maxStringLength) {
        const remaining = value.length - context.maxStringLength;
        value = value.slice(0, context.maxStringLength);
        trailer = `... ${remaining} more character${remaining > 1 ? 's' : ''}`;
      }
      const long = value.length > 16 && value.length > context.breakLength - context.indentation - 4;
      if (context.compact !== true && long && value.includes('\n')) {
        const lines = value.split(/(?<=\n)/).map((line) => quote(line));
        return lines.join(` +\n${' '.repeat(context.indentation + 2)}`) + trailer;
      }
      return quote(value) + trailer;
    }
    case 'number':
      return formatNumber(value);
    case 'bigint':
      return `${value}n`;
    case 'symbol':
      return value.toString();
    default:
      return `${value}`;
  }
}

function format(context, value, level) {
  if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return formatPrimitive(context, value);
  if (proxyDetails && isProxy(value)) {
    const [target, handler] = proxyDetails(value);
    if (target === null || target === undefined) return '<Revoked Proxy>';
    if (context.showProxy) return `Proxy [ ${format(context, target, level + 1)}, ${format(context, handler, level + 1)} ]`;
    value = target; // no trap of the handler runs
  }
  if (context.customInspect) {
    const method = value[custom];
    const isClassPrototype = value.constructor && value.constructor.prototype === value;
    if (typeof method === 'function' && method !== inspect && !isClassPrototype) {
      const depth = context.depth === Infinity ? Infinity : context.depth - level;
      const result = method.call(value, depth === Infinity ? null : depth, nestedOptions(context, depth), inspect);
      if (result !== value) {
        if (typeof result !== 'object') return `${result}`.replaceAll('\n', `\n${' '.repeat(context.indentation)}`);
        return format(context, result, level);
      }
    }
  }
  if (context.seen.includes(value)) {
    if (!context.circular.has(value)) context.circular.set(value, context.circular.size + 1);
    return `[Circular *${context.circular.get(value)}]`;
  }
  return formatObject(context, value, level);
}

function nestedOptions(context, depth) {
  const options = {};
  for (const key of Object.keys(defaultOptions)) options[key] = context[key];
  if (context.userOptions && typeof context.userOptions === 'object') Object.assign(options, context.userOptions);
  options.depth = depth === Infinity ? null : depth;
  options.stylize = context.stylize;
  return options;
}

// The name of the class, or null for an object without any prototype that leads to a constructor.
function constructorName(value) {
  for (let object = value, steps = 0; object; object = Object.getPrototypeOf(object), steps++) {
    const descriptor = Object.getOwnPropertyDescriptor(object, 'constructor');
    const maker = descriptor && descriptor.value;
    if (typeof maker === 'function' && maker.name !== '' && (steps > 0 || value instanceof maker)) return maker.name;
  }
  return null;
}

// "Foo(2) [tag] ": what stands before the brace.
function prefix(name, tag, fallback, size = '') {
  if (name === null) {
    if (tag !== '' && tag !== fallback) return `[${fallback}${size}: null prototype] [${tag}] `;
    return `[${fallback}${size}: null prototype] `;
  }
  return tag !== '' && tag !== name ? `${name}${size} [${tag}] ` : `${name}${size} `;
}

function toStringTag(value, name) {
  const tag = value[Symbol.toStringTag];
  if (typeof tag !== 'string' || tag === '') return '';
  return tag === name ? '' : tag;
}

function keysOf(context, value) {
  if (context.showHidden) return Reflect.ownKeys(value);
  const keys = Object.keys(value);
  for (const symbol of Object.getOwnPropertySymbols(value)) {
    if (Object.prototype.propertyIsEnumerable.call(value, symbol)) keys.push(symbol);
  }
  return keys;
}

const isIndex = (key) => typeof key === 'string' && /^(0|[1-9]\d{0,9})$/.test(key) && +key < 2 ** 32 - 1;

// How an object of a kind is shown: {braces, base, keys, entries(context, level) -> lines, isArray}.
function describe(context, value) {
  const name = constructorName(value);
  const tag = toStringTag(value, name);
  const plain = { braces: ['{', '}'], base: '', keys: keysOf(context, value), entries: () => [], isArray: false };
  if (Array.isArray(value)) {
    const head = name !== 'Array' || tag !== '' ? prefix(name, tag, 'Array', `(${value.length})`) : '';
    const keys = plain.keys.filter((key) => !isIndex(key));
    if (value.length === 0 && keys.length === 0) return { text: `${head}[]` };
    return { ...plain, keys, braces: [`${head}[`, ']'], entries: arrayEntries, isArray: true };
  }
  const kind = classOf(value);
  switch (kind) {
    case 'Map':
    case 'Set': {
      const head = prefix(name, tag, kind, `(${value.size})`);
      if (value.size === 0 && plain.keys.length === 0) return { text: `${head}{}` };
      return { ...plain, braces: [`${head}{`, '}'], entries: kind === 'Map' ? mapEntries : setEntries };
    }
    case 'Map Iterator':
    case 'Set Iterator':
      return { ...plain, braces: [`[${kind}] {`, '}'] };
    case 'WeakMap':
    case 'WeakSet':
      return { ...plain, braces: [`${prefix(name, tag, kind)}{`, '}'], entries: () => ['<items unknown>'] };
    case 'TypedArray': {
      const fallback = typedArrayName(value);
      const head = prefix(name, tag === fallback ? '' : tag, fallback, `(${value.length})`);
      const keys = plain.keys.filter((key) => !isIndex(key));
      if (value.length === 0 && keys.length === 0) return { text: `${head}[]` };
      return { ...plain, keys, braces: [`${head}[`, ']'], entries: typedArrayEntries, isArray: true };
    }
    case 'Arguments':
      return { ...plain, braces: ['[Arguments] {', '}'] };
    case 'Function': {
      const base = functionBase(value, name, tag);
      if (plain.keys.length === 0) return { text: base };
      return { ...plain, base };
    }
    case 'RegExp':
    case 'Date': {
      let base = kind === 'RegExp' ? RegExp.prototype.toString.call(value) : dateText(value);
      if (name !== kind) base = `${prefix(name, tag, kind)}${base}`;
      if (plain.keys.length === 0) return { text: base };
      return { ...plain, base };
    }
    case 'Error': {
      const { errorBase, errorKeys } = require('_inspect_error');
      const keys = errorKeys(value, plain.keys);
      const base = errorBase(context, value, name, tag);
      if (keys.length === 0) return { text: base };
      return { ...plain, base, keys };
    }
    case 'ArrayBuffer':
    case 'SharedArrayBuffer':
      return { ...plain, braces: [`${prefix(name, tag, kind)}{`, '}'], entries: bufferEntries };
    case 'DataView':
      return { ...plain, braces: [`${prefix(name, tag, kind)}{`, '}'], entries: viewEntries };
    case 'Promise':
      return { ...plain, braces: [`${prefix(name, tag, kind)}{`, '}'], entries: promiseEntries };
    case 'Number':
    case 'String':
    case 'Boolean':
    case 'BigInt':
    case 'Symbol': {
      const keys = kind === 'String' ? plain.keys.filter((key) => !isIndex(key)) : plain.keys;
      const type = name === kind ? kind : name === null ? `${kind} (null prototype)` : `${kind} (${name})`;
      const base = `[${type}: ${formatPrimitive({ ...context, compact: true }, value.valueOf())}]`;
      if (keys.length === 0) return { text: base };
      return { ...plain, base, keys };
    }
    default: {
      const head = name === 'Object' && tag === '' ? '' : prefix(name, tag, 'Object');
      if (plain.keys.length === 0) return { text: `${head}{}` };
      return { ...plain, braces: [`${head}{`, '}'] };
    }
  }
}

function formatObject(context, value, level) {
  // At the bottom only the name is shown. Errors, dates and functions without more properties are shown in full.
  const form = describe(context, value);
  if (form.text !== undefined) return form.text;
  if (level > context.depth) {
    const name = constructorName(value);
    const shown = prefix(name, toStringTag(value, name), Array.isArray(value) ? 'Array' : 'Object').slice(0, -1);
    return `[${shown}]`;
  }
  context.seen.push(value);
  context.currentDepth = level;
  let output;
  try {
    output = form.entries(context, value, level + 1);
    for (const key of form.keys) output.push(formatProperty(context, value, level + 1, key, form.isArray));
  } catch (error) {
    context.seen.pop();
    // A stack overflow in a deep object.
    if (error instanceof RangeError || error?.message === 'stack overflow')
      return `[${constructorName(value)}: Inspection interrupted prematurely.]`;
    throw error;
  }
  context.seen.pop();
  let { base } = form;
  const { braces } = form;
  if (context.circular.has(value)) {
    const reference = `<ref *${context.circular.get(value)}>`;
    if (base !== '') base = `${reference} ${base}`;
    else braces[0] = `${reference} ${braces[0]}`;
  }
  if (context.sorted) {
    const compare = typeof context.sorted === 'function' ? context.sorted : undefined;
    if (!form.isArray) output.sort(compare);
  }
  if (form.isArray && output.length > 6 && typeof context.compact === 'number' && context.compact >= 1) {
    const grouped = groupItems(context, output, value);
    return layOut(context, grouped, base, braces, level, grouped.length === output.length);
  }
  return layOut(context, output, base, braces, level, true);
}

function formatProperty(context, value, level, key, inArray) {
  const descriptor = Object.getOwnPropertyDescriptor(value, key) || { value: value[key], configurable: true, enumerable: true };
  let text;
  if ('value' in descriptor) {
    const difference = context.compact !== true || inArray ? 2 : 3;
    context.indentation += difference;
    text = format(context, descriptor.value, level);
    context.indentation -= difference;
  } else if (descriptor.get) {
    text = descriptor.set ? '[Getter/Setter]' : '[Getter]';
  } else {
    text = descriptor.set ? '[Setter]' : 'undefined';
  }
  let name;
  if (typeof key === 'symbol') name = `[${key.toString()}]`;
  else if (key === '__proto__') name = "['__proto__']";
  else if (!descriptor.enumerable) name = `[${key}]`;
  else name = /^[a-zA-Z_][a-zA-Z_0-9]*$/.test(key) ? key : quote(key);
  return `${name}: ${text}`;
}

function more(count) {
  return `... ${count} more item${count > 1 ? 's' : ''}`;
}

function formatItem(context, value, level) {
  context.indentation += 2;
  const text = format(context, value, level);
  context.indentation -= 2;
  return text;
}

function arrayEntries(context, value, level) {
  const output = [];
  const limit = Math.min(Math.max(0, context.maxArrayLength), value.length);
  let index = 0;
  while (index < value.length && output.length < limit) {
    if (Object.hasOwn(value, index)) {
      output.push(formatItem(context, value[index], level));
      index++;
      continue;
    }
    const start = index;
    while (index < value.length && !Object.hasOwn(value, index)) index++;
    const count = index - start;
    output.push(`<${count} empty item${count > 1 ? 's' : ''}>`);
  }
  if (index < value.length) output.push(more(value.length - index));
  return output;
}

function typedArrayEntries(context, value) {
  const limit = Math.min(Math.max(0, context.maxArrayLength), value.length);
  const output = [];
  for (let index = 0; index < limit; index++) output.push(formatPrimitive(context, value[index]));
  if (value.length > limit) output.push(more(value.length - limit));
  if (context.showHidden)
    for (const key of ['BYTES_PER_ELEMENT', 'length', 'byteLength', 'byteOffset']) output.push(`[${key}]: ${value[key]}`);
  return output;
}

function mapEntries(context, value, level) {
  const output = [];
  context.indentation += 2;
  for (const [key, item] of Map.prototype.entries.call(value)) {
    if (output.length >= context.maxArrayLength) break;
    output.push(`${format(context, key, level)} => ${format(context, item, level)}`);
  }
  context.indentation -= 2;
  if (value.size > context.maxArrayLength) output.push(more(value.size - context.maxArrayLength));
  return output;
}

function setEntries(context, value, level) {
  const output = [];
  context.indentation += 2;
  for (const item of Set.prototype.values.call(value)) {
    if (output.length >= context.maxArrayLength) break;
    output.push(format(context, item, level));
  }
  context.indentation -= 2;
  if (value.size > context.maxArrayLength) output.push(more(value.size - context.maxArrayLength));
  return output;
}

function bufferEntries(context, value) {
  const bytes = new Uint8Array(value);
  const limit = Math.min(Math.max(0, context.maxArrayLength), bytes.length);
  const text = Array.from(bytes.subarray(0, limit), (byte) => byte.toString(16).padStart(2, '0')).join(' ');
  const rest = bytes.length - limit;
  const trailer = rest > 0 ? ` ... ${rest} more byte${rest > 1 ? 's' : ''}` : '';
  return [`[Uint8Contents]: <${text}${trailer}>`, `byteLength: ${value.byteLength}`];
}

function viewEntries(context, value, level) {
  return ['byteLength', 'byteOffset', 'buffer'].map((key) => `${key}: ${formatItem(context, value[key], level)}`);
}

function promiseEntries(context, value, level) {
  const details = isPromise(value) && getPromiseDetails ? getPromiseDetails(value) : [0];
  if (details[0] === 0) return ['<pending>'];
  const text = formatItem(context, details[1], level);
  return [details[0] === 2 ? `<rejected> ${text}` : text];
}

function dateText(value) {
  const time = Date.prototype.getTime.call(value);
  return Number.isNaN(time) ? 'Invalid Date' : Date.prototype.toISOString.call(value);
}

function functionBase(value, name, tag) {
  const source = Function.prototype.toString.call(value);
  if (source.startsWith('class') && source.endsWith('}')) {
    const own = Object.hasOwn(value, 'name') && value.name;
    let text = `[class ${own || '(anonymous)'}`;
    if (name !== 'Function' && name !== null) text += ` [${name}]`;
    if (tag !== '' && name !== tag) text += ` [${tag}]`;
    const parent = Object.getPrototypeOf(value);
    if (name === null) text += ' extends [null prototype]';
    else if (parent && parent.name) text += ` extends ${parent.name}`;
    return `${text}]`;
  }
  const kinds = {
    AsyncFunction: 'AsyncFunction',
    GeneratorFunction: 'GeneratorFunction',
    AsyncGeneratorFunction: 'AsyncGeneratorFunction',
  };
  const type = kinds[tag] ?? kinds[name] ?? 'Function';
  let text = `[${type}`;
  if (name === null) text += ' (null prototype)';
  text += value.name === '' || typeof value.name !== 'string' ? ' (anonymous)' : `: ${value.name}`;
  text += ']';
  if (name !== type && name !== null && !kinds[name]) text += ` ${name}`;
  if (tag !== '' && name !== tag && !kinds[tag]) text += ` [${tag}]`;
  return text;
}

inspect.custom = custom;
inspect.defaultOptions = defaultOptions;
inspect.colors = {};
inspect.styles = {};
module.exports = { inspect, format, formatNumber, isError };
