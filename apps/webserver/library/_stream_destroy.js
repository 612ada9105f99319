// SPDX-License-Identifier: BSL-1.0
// The end of a stream by force: `destroy`, errors, 'close'.
//
// Readable and Writable share one destruction. A Duplex has two states, and both are marked. 'error' and 'close' are emitted once, in a
// later tick, after `_destroy` has called back.
'use strict';

const nextTick = require('_ticks');

function statesOf(stream) {
  const readable = stream._readableState;
  const writable = stream._writableState;
  if (readable && writable && readable !== writable) return [readable, writable];
  return readable ? [readable] : writable ? [writable] : [];
}

/// The fields of a state that destruction uses.
function initialize(state, options) {
  state.constructed = true;
  state.destroyed = false;
  state.errored = null;
  state.errorEmitted = false;
  state.closed = false;
  state.closeEmitted = false;
  state.emitClose = !options || options.emitClose !== false;
  state.autoDestroy = !options || options.autoDestroy !== false;
}

function emitErrorOnce(stream, error) {
  const states = statesOf(stream);
  if (states.some((state) => state.errorEmitted)) return;
  for (const state of states) state.errorEmitted = true;
  stream.emit('error', error);
}

function emitCloseOnce(stream) {
  const states = statesOf(stream);
  for (const state of states) state.closeEmitted = true;
  if (states.some((state) => state.emitClose)) stream.emit('close');
}

function emitErrorAndClose(stream, error) {
  emitErrorOnce(stream, error);
  emitCloseOnce(stream);
}

function markErrored(stream, error) {
  if (!error) return;
  for (const state of statesOf(stream)) if (!state.errored) state.errored = error;
}

function runDestroy(stream, error, callback) {
  let called = false;
  const done = (failure) => {
    if (called) return;
    called = true;
    markErrored(stream, failure);
    for (const state of statesOf(stream)) state.closed = true;
    if (typeof callback === 'function') callback(failure);
    if (failure) nextTick(emitErrorAndClose, stream, failure);
    else nextTick(emitCloseOnce, stream);
  };
  try {
    stream._destroy(error || null, done);
  } catch (failure) {
    done(failure);
  }
}

function destroy(error, callback) {
  const states = statesOf(this);
  if (states.some((state) => state.destroyed)) {
    if (typeof callback === 'function') callback();
    return this;
  }
  markErrored(this, error);
  for (const state of states) state.destroyed = true;
  if (states.some((state) => !state.constructed)) {
    this.once('_constructed', (failure) => runDestroy(this, failure || error, callback));
  } else {
    runDestroy(this, error, callback);
  }
  return this;
}

/// An error of the stream's own work: destroys the stream, or only reports if the stream keeps itself alive (autoDestroy: false).
function fail(stream, error, inOwnTick = false) {
  const states = statesOf(stream);
  if (states.some((state) => state.destroyed)) return;
  if (states.some((state) => state.autoDestroy)) {
    stream.destroy(error);
    return;
  }
  markErrored(stream, error);
  if (inOwnTick) nextTick(emitErrorOnce, stream, error);
  else emitErrorOnce(stream, error);
}

/// Calls `_construct`, if the stream has it; `proceed` runs when it has called back.
function construct(stream, proceed) {
  if (typeof stream._construct !== 'function') return;
  const states = statesOf(stream);
  for (const state of states) state.constructed = false;
  stream.once('_started', proceed);
  if (stream.listenerCount('_started') > 1) return;
  nextTick(() => {
    let called = false;
    const done = (error) => {
      if (called) return;
      called = true;
      for (const state of statesOf(stream)) state.constructed = true;
      if (statesOf(stream).some((state) => state.destroyed)) stream.emit('_constructed', error);
      else if (error) fail(stream, error, true);
      else nextTick(() => stream.emit('_started'));
    };
    try {
      stream._construct((error) => nextTick(done, error));
    } catch (error) {
      nextTick(done, error);
    }
  });
}

module.exports = { initialize, destroy, fail, construct };
