// SPDX-License-Identifier: BSL-1.0
// TextEncoder and TextDecoder over the mock natives: the engine provides the real ones.
'use strict';

(function (global) {
  global.TextEncoder = class TextEncoder {
    get encoding() {
      return 'utf-8';
    }

    encode(string = '') {
      return global.mockText.encode(`${string}`, 'utf8');
    }
  };

  global.TextDecoder = class TextDecoder {
    get encoding() {
      return 'utf-8';
    }

    decode(bytes = new Uint8Array()) {
      const view = ArrayBuffer.isView(bytes) ? new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength) : new Uint8Array(bytes);
      const text = global.mockText.decode(view, 'utf8', 0, view.length);
      return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
    }
  };
})(globalThis);
