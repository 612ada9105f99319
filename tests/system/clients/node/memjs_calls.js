// SPDX-License-Identifier: BSL-1.0
// Every call of memjs, which uses the binary protocol, printed as ../transcript.py describes. Arguments: the folder of node_modules, and
// HOST:PORT.
"use strict";

const path = require("path");
const {isDeepStrictEqual} = require("util");
const memjs = require(path.join(process.argv[2], "memjs"));

const address = process.argv[3];
const clients = Array.from({length: 4}, () => memjs.Client.create(address, {timeout: 30, logger: {log() {}}}));
const large = "x".repeat(300000);

function text(value) {
  if (value instanceof Error) return value.message;
  if (Buffer.isBuffer(value)) return value.toString();
  if (value !== null && typeof value === "object")
    return "{" + Object.entries(value).map(([name, part]) => `${name}: ${text(part)}`).join(", ") + "}";
  return String(value);
}

function report(method, parameters, answer, stated) {
  const fits = typeof stated === "function" ? stated(answer) : isDeepStrictEqual(answer, stated);
  const shown = text(answer).slice(0, 200);
  const line = {method, arguments: parameters.map(text).join(", ").slice(0, 200), answer: shown};
  console.log(JSON.stringify({...line, stated: fits ? shown : `not so: ${text(stated).slice(0, 200)}`}));
}

let next = 0;

// Makes a call on the next client, by promise.
async function call(stated, method, ...parameters) {
  let answer;
  try {
    answer = plain(await clients[next++ % clients.length][method](...parameters));
  } catch (error) {
    answer = error.message;
  }
  report(method, parameters, answer, stated);
}

// Makes a call on the next client, whose answer comes to a callback.
function callBack(stated, method, ...parameters) {
  return new Promise((resolve) => {
    clients[next++ % clients.length][method](...parameters, (error, ...answer) => {
      report(method, [...parameters, "callback"], error ? error.message : plain(answer), stated);
      resolve();
    });
  });
}

function plain(value) {
  if (Buffer.isBuffer(value)) return value.toString();
  if (Array.isArray(value)) return value.map(plain);
  if (value !== null && typeof value === "object")
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
  return value;
}

const found = (wanted) => (answer) => answer.value === wanted;
const missing = (answer) => answer.value === null;
const counted = (value) => ({success: true, value});

async function storeAndRead() {
  await call(true, "set", "a", "1", {expires: 100});
  await call(found("1"), "get", "a");
  await call(missing, "get", "missing");
  await callBack(["1", "\0\0\0\0"], "get", "a");
  await callBack([null, null], "get", "missing");
  await call(true, "set", "large", large, {});
  await call(found(large), "get", "large");
  await call(true, "set", "empty", "", {});
  await call(found(""), "get", "empty");
  await call(false, "add", "a", "2", {});
  await call(true, "delete", "a");
  await call(false, "delete", "a");
  await call(true, "add", "a", "2", {expires: 100});
  await call(true, "replace", "a", "3", {});
  await call(false, "replace", "missing", "3", {});
  await call(true, "append", "a", "4");
  await call(true, "prepend", "a", "2");  // this version of the library sends an append
  await call("MemJS APPEND: Item not stored", "append", "missing", "4");
  await call("MemJS PREPEND: Item not stored", "prepend", "missing", "4");
  await callBack([true], "append", "a", "5");
  await call(found("3425"), "get", "a");
  await callBack([true], "set", "a", "1", {});
  await callBack([false], "add", "a", "1", {});
  await callBack([true], "replace", "a", "1", {});
  await callBack([true], "delete", "a");
}

async function countAndTouch() {
  await call((answer) => typeof answer === "boolean", "delete", "n");
  await call(counted(10), "increment", "n", 5, {initial: 10, expires: 100});
  await call(counted(15), "increment", "n", 5, {});
  await call(counted(12), "decrement", "n", 3, {});
  await call(counted(0), "decrement", "n", 20, {});
  await call(true, "delete", "n");
  await call(counted(7), "decrement", "n", 1, {initial: 7});
  await call(true, "set", "word", "abc", {});
  await call((answer) => answer.startsWith("MemJS INCREMENT"), "increment", "word", 1, {});
  await call(true, "touch", "word", 100);
  await call(false, "touch", "missing", 100);
  await callBack([true], "touch", "word", 100);
}

const hasNames = (...names) => ([server, statistics]) => server === address && names.every((name) => name in statistics);

async function ofTheServer() {
  await callBack(hasNames("pid", "uptime", "version", "curr_items", "limit_maxbytes", "cmd_get"), "stats");
  await callBack(hasNames("maxbytes", "item_size_max"), "statsWithKey", "settings");
  await callBack((answer) => answer[0] === address, "resetStats");
  await call(true, "set", "flushed", "1", {});
  await call({[address]: true}, "flush");
  await call(missing, "get", "flushed");
  for (const client of clients) {
    const closed = new Promise((resolve) => client.servers[0]._socket.on("close", resolve));
    report("quit", [], client.quit(), undefined);
    await closed;  // the server ends the connection
  }
  for (const _ of clients) await call(true, "set", "again", "1", {});  // the clients connect again
  for (const client of clients) report("close", [], client.close(), undefined);
}

(async () => {
  await storeAndRead();
  await countAndTouch();
  await ofTheServer();
  const methods = Object.getOwnPropertyNames(memjs.Client.prototype).filter((name) => name !== "constructor");
  // `perform` is the part that the other methods share.
  console.log(JSON.stringify({class: "Client", methods, local: ["getServer", "server", "perform", "incrSeq"]}));
})();
