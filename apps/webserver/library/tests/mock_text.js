// SPDX-License-Identifier: BSL-1.0
// The natives of internalBinding('text'), in plain JavaScript, for tests of the library without the engine.
//
// The code is written from the description in `../buffer.js`, without Node's Buffer, so it also runs in a bare QuickJS.
'use strict';

(function (global) {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const urlAlphabet = `${alphabet.slice(0, 62)}-_`;
  const base64Value = new Map();
  for (let index = 0; index < 64; index++) base64Value.set(alphabet[index], index).set(urlAlphabet[index], index);

  function utf8Bytes(string) {
    const bytes = [];
    for (const character of string) {
      let code = character.codePointAt(0);
      if (code >= 0xd800 && code <= 0xdfff) code = 0xfffd;
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
      else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    }
    return bytes;
  }

  function hexBytes(string) {
    const bytes = [];
    for (let index = 0; index + 1 < string.length; index += 2) {
      const pair = string.slice(index, index + 2);
      if (!/^[0-9a-fA-F]{2}$/.test(pair)) break;
      bytes.push(parseInt(pair, 16));
    }
    return bytes;
  }

  function base64Bytes(string) {
    const bytes = [];
    let bits = 0;
    let count = 0;
    for (const character of string) {
      if (character === '=') break;
      const value = base64Value.get(character);
      if (value === undefined) continue;
      bits = ((bits << 6) | value) & 0xffffff;
      count += 6;
      if (count >= 8) {
        count -= 8;
        bytes.push((bits >> count) & 255);
      }
    }
    return bytes;
  }

  function bytesOf(string, encoding) {
    switch (encoding) {
      case 'utf8':
        return utf8Bytes(string);
      case 'latin1':
      case 'ascii':
        return Array.from({ length: string.length }, (_, index) => string.charCodeAt(index) & 255);
      case 'utf16le': {
        const bytes = [];
        for (let index = 0; index < string.length; index++) bytes.push(string.charCodeAt(index) & 255, string.charCodeAt(index) >> 8);
        return bytes;
      }
      case 'hex':
        return hexBytes(string);
      case 'base64':
      case 'base64url':
        return base64Bytes(string);
      default:
        throw new Error(`the library passed an encoding that natives do not know: ${encoding}`);
    }
  }

  // The WHATWG decoder: an invalid sequence gives one U+FFFD for its longest valid beginning.
  function utf8Text(bytes, start, end) {
    let result = '';
    for (let index = start; index < end;) {
      const first = bytes[index++];
      let needed = 0;
      let low = 0x80;
      let high = 0xbf;
      let code = first;
      if (first >= 0xc2 && first <= 0xdf) [needed, code] = [1, first & 31];
      else if (first >= 0xe0 && first <= 0xef) {
        [needed, code] = [2, first & 15];
        if (first === 0xe0) low = 0xa0;
        if (first === 0xed) high = 0x9f;
      } else if (first >= 0xf0 && first <= 0xf4) {
        [needed, code] = [3, first & 7];
        if (first === 0xf0) low = 0x90;
        if (first === 0xf4) high = 0x8f;
      } else if (first >= 0x80) code = 0xfffd;
      while (needed > 0) {
        if (index >= end || bytes[index] < low || bytes[index] > high) {
          code = 0xfffd;
          break;
        }
        code = (code << 6) | (bytes[index++] & 63);
        low = 0x80;
        high = 0xbf;
        needed--;
      }
      result += String.fromCodePoint(code);
    }
    return result;
  }

  function base64Text(bytes, start, end, letters, padding) {
    let result = '';
    for (let index = start; index < end; index += 3) {
      const count = Math.min(3, end - index);
      const bits = (bytes[index] << 16) | ((count > 1 ? bytes[index + 1] : 0) << 8) | (count > 2 ? bytes[index + 2] : 0);
      for (let letter = 0; letter <= count; letter++) result += letters[(bits >> (18 - 6 * letter)) & 63];
      if (padding) result += '='.repeat(3 - count);
    }
    return result;
  }

  function decode(bytes, encoding, start, end) {
    if (!(start >= 0 && start <= end && end <= bytes.length)) throw new Error('the library passed a range outside of the bytes');
    let result = '';
    switch (encoding) {
      case 'utf8':
        return utf8Text(bytes, start, end);
      case 'latin1':
        for (let index = start; index < end; index++) result += String.fromCharCode(bytes[index]);
        return result;
      case 'ascii':
        for (let index = start; index < end; index++) result += String.fromCharCode(bytes[index] & 127);
        return result;
      case 'utf16le':
        for (let index = start; index + 1 < end; index += 2) result += String.fromCharCode(bytes[index] | (bytes[index + 1] << 8));
        return result;
      case 'hex':
        for (let index = start; index < end; index++) result += bytes[index].toString(16).padStart(2, '0');
        return result;
      case 'base64':
        return base64Text(bytes, start, end, alphabet, true);
      case 'base64url':
        return base64Text(bytes, start, end, urlAlphabet, false);
      default:
        throw new Error(`the library passed an encoding that natives do not know: ${encoding}`);
    }
  }

  function writeInto(target, string, offset, length, encoding) {
    const limit = Math.min(target.length - offset, length);
    let bytes = bytesOf(string, encoding);
    if (bytes.length > limit) {
      let keep = limit;
      if (encoding === 'utf8') while (keep > 0 && (bytes[keep] & 0xc0) === 0x80) keep--;
      if (encoding === 'utf16le') keep &= ~1;
      bytes = bytes.slice(0, keep);
    }
    target.set(bytes, offset);
    return bytes.length;
  }

  function compare(first, second) {
    const count = Math.min(first.length, second.length);
    for (let index = 0; index < count; index++) {
      if (first[index] !== second[index]) return first[index] < second[index] ? -1 : 1;
    }
    return Math.sign(first.length - second.length);
  }

  function indexOf(haystack, needle, from, forward, step) {
    const last = haystack.length - needle.length;
    if (needle.length === 0) throw new Error('the library passed an empty needle');
    if (!forward && from > last) from = last;
    if (step === 2 && from % 2 !== 0) throw new Error('the library passed an odd offset');
    for (let index = from; index >= 0 && index <= last; index += forward ? step : -step) {
      let same = 0;
      while (same < needle.length && haystack[index + same] === needle[same]) same++;
      if (same === needle.length) return index;
    }
    return -1;
  }

  function fill(target, pattern, start, end) {
    for (let index = start; index < end; index++) target[index] = pattern[(index - start) % pattern.length];
  }

  global.mockText = {
    encode: (string, encoding) => new Uint8Array(bytesOf(string, encoding)),
    decode,
    byteLength: (string) => utf8Bytes(string).length,
    writeInto,
    compare,
    indexOf,
    fill,
  };
})(globalThis);
