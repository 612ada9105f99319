// SPDX-License-Identifier: BSL-1.0
// The hello of Hono on its adapter for Node, and a few of its other functions.
import { serve } from '@hono/node-server';
import { Hono } from 'hono';

const app = new Hono();
app.get('/', (c) => c.text('Hono meets Node.js'));
app.get('/hello', (c) => c.text('hello\n'));
app.get('/users/:name', (c) => c.json({ name: c.req.param('name'), query: c.req.query() }));
app.post('/echo', async (c) => c.json({ got: await c.req.json(), type: c.req.header('content-type') }));
app.get('/html', (c) => c.html('<h1>Hello</h1>'));
app.get('/redirect', (c) => c.redirect('/users/root'));
app.get('/broken', () => {
  throw new Error('broken on purpose');
});
app.onError((error, c) => c.text(`caught: ${error.message}`, 500));

serve({ fetch: app.fetch, port: Number(process.env.PORT) }, (info) => {
  console.log(`Hono listens on ${info.port}`);
});
