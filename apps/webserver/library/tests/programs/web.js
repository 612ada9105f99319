// SPDX-License-Identifier: BSL-1.0
'use strict';
const { Readable, Writable } = require('stream');
const { Buffer } = require('buffer');

const decode = (bytes) => Buffer.from(bytes).toString();
const attempt = async (name, action) => {
  try {
    const value = await action();
    print(name, typeof value === 'string' ? value : JSON.stringify(value));
  } catch (error) {
    print(name, 'throws', error.name);
  }
};

(async () => {
  const headers = new Headers({ 'X-B': ' 2 ', 'Content-Type': 'text/plain' });
  headers.append('x-a', '1');
  headers.append('X-A', '3');
  headers.append('Set-Cookie', 'a=1');
  headers.append('Set-Cookie', 'b=2');
  print(
    JSON.stringify([...headers]),
    headers.get('x-a'),
    headers.has('X-B'),
    headers.get('none'),
    JSON.stringify(headers.getSetCookie()),
    headers.get('set-cookie'),
  );
  headers.delete('x-b');
  headers.set('x-a', 'new');
  headers.forEach((value, name) => print(name, value));
  print([...headers.keys()].join(), [...headers.values()].join());
  await attempt('bad name', () => headers.set('a b', 'x'));
  await attempt('bad value', () => headers.set('a', 'x\ny'));
  await attempt('null', () => new Headers(null));
  print(JSON.stringify([...new Headers([['a', 'b']])]), JSON.stringify([...new Headers(headers)]));

  const response = new Response('text', { status: 201, statusText: 'Made', headers: { 'x-a': 'b' } });
  print(
    response.status,
    response.statusText,
    response.ok,
    response.headers.get('content-type'),
    response.bodyUsed,
    response.type,
    JSON.stringify(response.url),
    response.redirected,
  );
  print(await response.clone().text(), await response.text(), response.bodyUsed);
  await attempt('again', () => response.text());
  await attempt('json', () => Response.json({ a: 1 }).json());
  print(Response.json({}).headers.get('content-type'), Response.redirect('http://a/b', 301).headers.get('location'), Response.error().type);
  await attempt('bytes', async () => decode(await new Response(new Uint8Array([65, 66])).arrayBuffer()));
  await attempt('blob', async () => (await new Response(new Blob(['ab', new Uint8Array([67])], { type: 'Text/X' })).blob()).size);
  await attempt('204', () => new Response('x', { status: 204 }).status);
  await attempt('status', () => new Response('x', { status: 1000 }).status);
  await attempt('parameters', async () => `${await new Response(new URLSearchParams('a=1&b=2')).text()}`);
  await attempt('stream', async () => {
    let text = '';
    for await (const chunk of new Response('from a stream').body) text += decode(chunk);
    return text;
  });
  await attempt('form', async () => {
    const form = new FormData();
    form.append('a', '1');
    form.append('file', new Blob(['content'], { type: 'text/x' }), 'name.txt');
    const parsed = await new Response(form).formData();
    return [parsed.get('a'), parsed.get('file').name, await parsed.get('file').text(), parsed.get('file').type];
  });
  await attempt('form urlencoded', async () =>
    (await new Response('a=1&b=x+y', { headers: { 'content-type': 'application/x-www-form-urlencoded' } }).formData()).get('b'),
  );

  const request = new Request('http://host/path?q=1', { method: 'post', body: 'body', headers: { 'X-Y': 'z' } });
  print(
    request.method,
    request.url,
    request.headers.get('x-y'),
    request.headers.get('content-type'),
    request.signal.aborted,
    request.mode,
    request.redirect,
  );
  const copy = new Request(request, { headers: { 'x-new': '1' } });
  print(copy.method, copy.headers.get('x-y'), copy.headers.get('x-new'), request.bodyUsed, await copy.text());
  await attempt('get with body', () => new Request('http://a', { body: 'x' }).method);
  await attempt('relative', () => new Request('/path').url);
  await attempt('no duplex', () => new Request('http://a', { method: 'POST', body: new ReadableStream() }).method);
  class Sub extends Request {}
  print(new Sub('http://a/').url, new Sub('http://a/') instanceof Request);

  const stream = new ReadableStream({
    start: (controller) => controller.enqueue('start'),
    pull(controller) {
      this.count = (this.count ?? 0) + 1;
      controller.enqueue(`pull ${this.count}`);
      if (this.count === 2) controller.close();
    },
  });
  const [left, right] = stream.tee();
  print(stream.locked);
  for await (const chunk of left) print('left', chunk);
  for await (const chunk of right) print('right', chunk);
  const cancelled = new ReadableStream({ pull: (controller) => controller.enqueue('x'), cancel: (reason) => print('cancel', reason) });
  for await (const chunk of cancelled) {
    print(chunk);
    break;
  }
  const reader = new ReadableStream({ start: (controller) => controller.error(new Error('broken')) }).getReader();
  await attempt('broken', () => reader.read());
  await attempt('closed', () => reader.closed);
  const written = [];
  await ReadableStream.from(['a', 'b'])
    .pipeThrough(
      new TransformStream({
        transform: (chunk, controller) => controller.enqueue(chunk.toUpperCase()),
        flush: (controller) => controller.enqueue('!'),
      }),
    )
    .pipeTo(new WritableStream({ write: (chunk) => void written.push(chunk), close: () => void written.push('closed') }));
  print(written.join());
  const writer = new WritableStream({ write: (chunk) => print('writes', chunk) }).getWriter();
  print(writer.desiredSize);
  await writer.ready;
  writer.write('1');
  await writer.close();

  let text = '';
  for await (const chunk of Readable.toWeb(Readable.from([Buffer.from('to '), Buffer.from('web')], { objectMode: false })))
    text += decode(chunk);
  print(text);
  text = '';
  for await (const chunk of Readable.fromWeb(new Response('from web').body)) text += chunk;
  print(text);
  const sink = Writable.toWeb(new Writable({ write: (chunk, encoding, callback) => (print('sink', chunk.toString()), callback()) }));
  await ReadableStream.from([Buffer.from('x'), Buffer.from('y')]).pipeTo(sink);
  const blob = new Blob(['hello ', 'world'], { type: 'text/plain' });
  print(blob.size, blob.type, await blob.slice(6).text(), await blob.text());
  const file = new File(['x'], 'f.txt');
  print(file.name, file.size, file instanceof Blob);
})();
