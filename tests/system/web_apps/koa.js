// SPDX-License-Identifier: BSL-1.0
// Koa: middleware around the answer, its context's properties, and its treatment of errors.
'use strict';
const Koa = require('koa');

const app = new Koa();
app.silent = true;
app.use(async (ctx, next) => {
  await next();
  ctx.set('X-Path', ctx.path);
});
app.use(async (ctx) => {
  if (ctx.path === '/') ctx.body = 'Hello from Koa';
  else if (ctx.path === '/hello') ctx.body = 'hello\n';
  else if (ctx.path === '/json') ctx.body = { method: ctx.method, query: ctx.query, type: ctx.accepts('html', 'json') };
  else if (ctx.path === '/bytes') ctx.body = Buffer.alloc(5000, 'koa');
  else if (ctx.path === '/redirect') ctx.redirect('/json');
  else if (ctx.path === '/broken') throw new Error('broken on purpose');
});
app.listen(Number(process.env.PORT), () => console.log('Koa listens'));
