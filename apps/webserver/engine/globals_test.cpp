// SPDX-License-Identifier: BSL-1.0
// The globals, and the bindings beneath them. Each test is a script that prints what it finds.
#include <gtest/gtest.h>

#include <string>

#include "apps/webserver/engine/test_engine.hpp"

namespace neap::webserver {
namespace {

/// Runs a script in which `check(actual, expected)` prints differing values; returns all of its output.
std::string differences(std::string_view script) {
  TestEngine engine({{"server.js", std::string(R"(
    const same = (a, b) => Object.is(a, b) || JSON.stringify(a) === JSON.stringify(b);
    function check(actual, expected) {
      if (!same(actual,
      expected)) console.log(`${JSON.stringify(actual)} instead of ${JSON.stringify(expected)} ${new Error().stack.split('\n')[2]}`);
    }
    function fails(call, name) {
      try { call(); } catch (error) { if (error.code === name || error.name === name) return;
      console.log(`${error.name} ${error.code} instead of ${name}`); return; }
      console.log(`no ${name}`);
    }
    )") + std::string(script)}});
  const std::string lines = engine.run_entry();
  return lines + engine.error();
}

TEST(Globals, Url) {
  EXPECT_EQ(differences(R"JS(
    const url = new URL('../b?x=1&x=2#h', 'http://user:pa%20ss@Example.COM:80/a/c');
    check(url.href, 'http://user:pa%20ss@example.com/b?x=1&x=2#h');
    check([url.origin, url.protocol, url.username, url.password, url.host, url.hostname, url.port, url.pathname, url.search, url.hash],
          ['http://example.com', 'http:', 'user', 'pa%20ss', 'example.com', 'example.com', '', '/b', '?x=1&x=2', '#h']);
    check(`${url}`, url.href); check(JSON.stringify({ url }), `{"url":"${url.href}"}`);
    url.port = '8080'; url.pathname = '/ü'; url.hash = ''; url.protocol = 'https'; url.host = 'x.org:1'; url.username = 'a b';
    check(url.href, 'https://a%20b:pa%20ss@x.org:1/%C3%BC?x=1&x=2');
    url.port = 'abc'; check(url.port, '1');
    fails(() => { url.href = 'none'; }, 'ERR_INVALID_URL'); fails(() => new URL('/x'), 'ERR_INVALID_URL');
    fails(() => new URL(), 'ERR_MISSING_ARGS');
    check(URL.canParse('/x', 'http://a'), true); check(URL.canParse('/x'), false); check(URL.parse('nope'), null);
    check(new URL('http://ドメイン.テスト/').hostname, 'xn--eckwd4c7c.xn--zckzah');
    check(new URL('http://[::1]:3/').host, '[::1]:3'); check(new URL('http://0x7f.1/').hostname, '127.0.0.1');
    check(new URL('data:text/plain,x').origin, 'null'); check(Object.prototype.toString.call(url), '[object URL]');
    // The live link, both ways.
    const params = url.searchParams;
    check(params, url.searchParams); params.append('y', 'ä &'); check(url.search, '?x=1&x=2&y=%C3%A4+%26');
    url.search = '?z=9'; check([...params], [['z', '9']]); params.delete('z'); check(url.href.includes('?'), false);
    url.href = 'http://q/?n=1'; check(params.get('n'), '1');
  )JS"),
            "");
}

TEST(Globals, UrlSearchParams) {
  EXPECT_EQ(differences(R"JS(
    const p = new URLSearchParams('?a=1&b=2&a=3&c&=d&&e=%F0%9F%98%80&f=%zz%FF+x');
    check([...p], [['a', '1'], ['b', '2'], ['a', '3'], ['c', ''], ['', 'd'], ['e', '😀'], ['f', '%zz\ufffd x']]);
    check([p.get('a'), p.getAll('a'), p.get('none'), p.has('a', '3'), p.has('a', '4'), p.size], ['1', ['1', '3'], null, true, false, 7]);
    p.set('a', 'x'); p.delete('b'); p.delete('c', 'other'); check(p.toString(), 'a=x&c=&=d&e=%F0%9F%98%80&f=%25zz%EF%BF%BD+x');
    p.sort(); check([...p.keys()], ['', 'a', 'c', 'e', 'f']); check([...p.values()].length, 5);
    check(new URLSearchParams({ q: "a~b!'()*-._", n: 1 }).toString(), 'q=a%7Eb%21%27%28%29*-._&n=1');
    check(new URLSearchParams([['a', 'b'], new Set(['c', 'd'])]).toString(), 'a=b&c=d');
    check(`${new URLSearchParams(new Map([['k', 'v']]))}`, 'k=v');
    check(`${new URLSearchParams('\ud800=x')}`, '%EF%BF%BD=x'); check(`${new URLSearchParams()}`, '');
    fails(() => new URLSearchParams([['a']]), 'ERR_INVALID_TUPLE'); fails(() => p.get(), 'ERR_MISSING_ARGS');
    fails(() => p.append('a'), 'ERR_MISSING_ARGS');
    const seen = []; p.forEach((value, name, self) => seen.push(name, value, self === p)); check(seen.slice(0, 3), ['', 'd', true]);
    const live = new URLSearchParams('a=1'); let count = 0; for (const [name] of live) if (count++ < 2) live.append(name + 'b', '');
    check(live.size, 3);
  )JS"),
            "");
}

TEST(Globals, ModuleUrl) {
  EXPECT_EQ(differences(R"JS(
    const url = require('node:url');
    check([url.URL === URL, url.URLSearchParams === URLSearchParams], [true, true]);
    check(url.fileURLToPath('file:///a%20b/c.js'), '/a b/c.js');
    check(url.pathToFileURL('/a b/100%#?.js').href, 'file:///a%20b/100%25%23%3F.js');
    fails(() => url.fileURLToPath('http://x/'), 'ERR_INVALID_URL_SCHEME');
    fails(() => url.fileURLToPath('file:///a%2Fb'), 'ERR_INVALID_FILE_URL_PATH');
    fails(() => url.fileURLToPath('file://host/a'), 'ERR_INVALID_FILE_URL_HOST'); fails(() => url.fileURLToPath(5), 'ERR_INVALID_ARG_TYPE');
    check(url.format(new URL('http://u:p@xn--mnchen-3ya.de/?q#h'),
    { auth: false, fragment: false, search: false, unicode: true }), 'http://m\u00fcnchen.de/');
    check(url.domainToASCII('m\u00fcnchen.de'), 'xn--mnchen-3ya.de'); check(url.domainToUnicode('xn--mnchen-3ya.de'), 'm\u00fcnchen.de');
    check({ ...url.urlToHttpOptions(new URL('http://a:b%20c@x:8/p?q=1#h')) },
    { protocol: 'http:', hostname: 'x', hash: '#h', search: '?q=1', pathname: '/p',
          path: '/p?q=1', href: 'http://a:b%20c@x:8/p?q=1#h', port: 8, auth: 'a:b c' });
    check(url.parse('/path?x=1', true).query.x, '1');
  )JS"),
            "");
}

TEST(Globals, TextEncoderAndDecoder) {
  EXPECT_EQ(differences(R"JS(
    const list = (bytes) => [...bytes];
    const encoder = new TextEncoder();
    check(list(encoder.encode('aé€😀\ud800')), [97, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x98, 0x80, 0xef, 0xbf, 0xbd]);
    check(list(encoder.encode()), []); check(list(encoder.encode('\xe9')), [0xc3, 0xa9]);
    const target = new Uint8Array(4); check(encoder.encodeInto('a€b', target), { read: 2, written: 4 });
    check(encoder.encodeInto('😀x', target.subarray(1)), { read: 0, written: 0 });
    const text = (bytes, ...options) => new TextDecoder(...options).decode(new Uint8Array(bytes));
    check(text([0xef, 0xbb, 0xbf, 97]), 'a'); check(text([0xef, 0xbb, 0xbf, 97], 'utf-8', { ignoreBOM: true }), '\ufeffa');
    check(text([0xf0, 0x9f, 0x98, 97, 0xc0, 0xaf, 0xed, 0xa0, 0x80, 0xff]), '\ufffda\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd');
    check(text([0xc3, 0xa9]), 'é'); check(text([0xe2, 0x82, 0xac]), '€'); check(text([0xe9], 'latin1'), 'é');
    check(text([0xac, 0x20, 0x3d, 0xd8, 0x00], 'utf-16le'), '€\ufffd\ufffd');
    fails(() => text([0xff], 'utf-8', { fatal: true }), 'ERR_ENCODING_INVALID_ENCODED_DATA');
    fails(() => new TextDecoder('none'), 'ERR_ENCODING_NOT_SUPPORTED');
    const all = encoder.encode('x€😀é'.repeat(3));
    for (let cut = 0; cut <= all.length; cut++) {
      const decoder = new TextDecoder('utf-8', { fatal: true });
      check(decoder.decode(all.subarray(0, cut), { stream: true }) + decoder.decode(all.subarray(cut)), 'x€😀é'.repeat(3));
    }
    const decoder = new TextDecoder();
    check(decoder.decode(new Uint8Array([0xe2, 0x82]), { stream: true }), ''); check(decoder.decode(), '\ufffd');
    check(decoder.decode(new Uint8Array([0xe2])), '\ufffd');
    const wide = new TextDecoder('utf-16le'); check(wide.decode(new Uint8Array([0x3d, 0xd8, 0x00]), { stream: true }), '');
    check(wide.decode(new Uint8Array([0xde])), '😀');
    check(decoder.decode(new DataView(all.buffer, 0, 1)), 'x'); fails(() => decoder.decode('text'), 'ERR_INVALID_ARG_TYPE');
    check(decoder.decode(new ArrayBuffer(0)), ''); check([decoder.encoding, decoder.fatal, decoder.ignoreBOM], ['utf-8', false, false]);
  )JS"),
            "");
}

TEST(Globals, StructuredClone) {
  EXPECT_EQ(differences(R"JS(
    const shared = { x: 1 };
    const source = { shared, again: shared, map: new Map([[shared,
    new Set([1, shared])]]), date: new Date(5), bytes: new Uint8Array([1, 2, 3]).subarray(1),
                     error: new RangeError('no', { cause: shared }),
                     expression: /a/gi, sparse: [1, , 3], big: 10n, none: undefined, object: Object('text') };
    source.self = source; source.sparse.extra = 1;
    const copy = structuredClone(source);
    check(copy !== source && copy.self === copy && copy.shared === copy.again && copy.shared !== shared, true);
    check([...copy.map.keys()][0] === copy.shared && [...[...copy.map.values()][0]][1] === copy.shared, true);
    check([copy.date.getTime(), [...copy.bytes], copy.bytes.byteOffset,
    copy.error.name, copy.error.message, copy.error instanceof RangeError, copy.error.cause === copy.shared],
          [5, [2, 3], 1, 'RangeError', 'no', true, true]);
    check([copy.expression.flags, 1 in copy.sparse, copy.sparse.length,
    copy.sparse.extra, copy.big === 10n, 'none' in copy, copy.object instanceof String], ['gi', false, 3, 1, true, true, true]);
    const buffer = new ArrayBuffer(8); const moved = structuredClone({ buffer }, { transfer: [buffer] });
    check([buffer.byteLength, moved.buffer.byteLength], [0, 8]);
    for (const bad of [() => {}, Symbol('s'), new WeakMap(), Promise.resolve(),
    { deep: [() => {}] }]) fails(() => structuredClone(bad), 'DataCloneError');
    fails(() => structuredClone(), 'TypeError');
  )JS"),
            "");
}

TEST(Globals, EventsAndAbort) {
  EXPECT_EQ(differences(R"JS(
    const target = new EventTarget(), log = [];
    const listener = (event) => log.push(event.type);
    target.addEventListener('a', listener); target.addEventListener('a', listener);
    target.addEventListener('a', { handleEvent: (event) => log.push(event.target === target) }, { once: true });
    target.dispatchEvent(new Event('a')); target.dispatchEvent(new Event('a')); target.removeEventListener('a', listener);
    target.dispatchEvent(new Event('a'));
    check(log, ['a', true, 'a']);
    target.addEventListener('b', (event) => { event.preventDefault(); event.stopImmediatePropagation(); });
    target.addEventListener('b', () => log.push('not reached'));
    check(target.dispatchEvent(new Event('b', { cancelable: true })), false); check(log.length, 3);
    check(new CustomEvent('c', { detail: 5 }).detail, 5);
    const controller = new AbortController(); const { signal } = controller; let aborted = 0;
    signal.onabort = () => aborted++; signal.addEventListener('abort', () => aborted++);
    target.addEventListener('d', () => log.push('removed'), { signal });
    controller.abort(); controller.abort(); target.dispatchEvent(new Event('d'));
    check([aborted, signal.aborted, signal.reason.name, log.length], [2, true, 'AbortError', 3]);
    fails(() => signal.throwIfAborted(), 'AbortError'); fails(() => new AbortSignal(), 'ERR_ILLEGAL_CONSTRUCTOR');
    check(AbortSignal.abort('why').reason, 'why'); const any = AbortSignal.any([new AbortController().signal, controller.signal]);
    check(any.aborted, true);
    const second = new AbortController(), of = AbortSignal.any([second.signal]); second.abort(7); check(of.reason, 7);
  )JS"),
            "");
}

TEST(Globals, TextBindingsOfBuffer) {
  EXPECT_EQ(differences(R"JS(
    check([btoa('a\xff'), atob('Yf8='), performance.now() > 0,
    performance.timeOrigin >= 0, global === globalThis, typeof queueMicrotask], ['Yf8=', 'a\xff', true, true, true, 'function']);
    check(new Date(0).getTimezoneOffset(), 0);
    {
      for (const [encoding, text] of Object.entries({ utf8: 'é€😀',
      latin1: 'é', hex: '00ff', base64: 'AAECAw==', base64url: '_-8', utf16le: '€😀' })) {
        check(Buffer.from(text, encoding).toString(encoding), text);
      }
      check([...Buffer.from('0g1', 'hex')], []); check(Buffer.from('a-_b\n=x',
      'base64').toString('hex'), '6bfff'.length === 5 ? Buffer.from('a+/b', 'base64').toString('hex') : '');
      const buffer = Buffer.from('abcabcab'); check([buffer.indexOf('cab'),
      buffer.indexOf('cab', 3), buffer.lastIndexOf('ab'), buffer.indexOf('x'), buffer.includes('bca')], [2, 5, 6, -1, true]);
      check(Buffer.alloc(7, 'abc').toString(), 'abcabca'); check(Buffer.compare(Buffer.from('a'), Buffer.from('b')), -1);
      check(Buffer.byteLength('€\xff'), 5);
      const small = Buffer.alloc(4); check([small.write('a€€'), small.toString('latin1', 0, 1)], [4, 'a']);
    }
  )JS"),
            "");
}

}  // namespace
}  // namespace neap::webserver
