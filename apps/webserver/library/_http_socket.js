// SPDX-License-Identifier: BSL-1.0
// The `socket` of a request: addresses, and a way to end the connection.
//
// Programs read `req.socket.remoteAddress`, set options or destroy it. Bytes cannot be read or written here: the connection belongs to
// natives. The options that have no meaning are accepted and do nothing.
'use strict';

const EventEmitter = require('events');
const { notImplemented } = require('_errors');

class Socket extends EventEmitter {
  constructor(request) {
    super();
    const peer = request._peer ? request._peer() : {};
    this._request = request;
    this._response = undefined; // set when a program asks the response for its socket
    this._timer = undefined;
    this.remoteAddress = peer.remoteAddress;
    this.remotePort = peer.remotePort;
    this.remoteFamily = peer.remoteFamily ?? peer.family;
    this.localAddress = peer.localAddress;
    this.localPort = peer.localPort;
    this.localFamily = peer.localFamily ?? peer.family;
    this.encrypted = false;
    this.readable = true;
    this.destroyed = false;
    this.connecting = false;
    this.pending = false;
    this.timeout = 0;
  }

  get writable() {
    return !this.destroyed;
  }

  get readyState() {
    return this.destroyed ? 'closed' : 'open';
  }

  get writableLength() {
    return this._response ? this._response.writableLength : 0;
  }

  get bytesRead() {
    return 0;
  }

  get bytesWritten() {
    return 0;
  }

  get parser() {
    return null;
  }

  address() {
    return { address: this.localAddress, family: this.localFamily, port: this.localPort };
  }

  destroy(error) {
    if (this.destroyed) return this;
    this.destroyed = true;
    clearTimeout(this._timer);
    this._request._resetConnection();
    if (!this._request.destroyed) this._request.destroy(error);
    require('_ticks')(() => {
      if (error && this.listenerCount('error') > 0) this.emit('error', error);
      this.emit('close', !!error);
    });
    return this;
  }

  destroySoon() {
    return this.destroy();
  }

  resetAndDestroy() {
    return this.destroy();
  }

  /// After `delay_ms` without an answer, 'timeout' is emitted on the request, the response and the server. Without listeners the connection
  /// ends.
  setTimeout(delay_ms, callback) {
    clearTimeout(this._timer);
    this.timeout = delay_ms;
    if (callback) this.once('timeout', callback);
    if (!(delay_ms > 0)) return this;
    this._timer = setTimeout(() => this._expire(), delay_ms);
    this._timer.unref?.();
    this._request.once('close', () => clearTimeout(this._timer));
    return this;
  }

  _expire() {
    const request = this._request;
    const response = this._response;
    let handled = request.emit('timeout', this);
    if (response) handled = response.emit('timeout', this) || handled;
    handled = this.emit('timeout') || handled;
    if (!handled) this.destroy();
  }

  write() {
    throw notImplemented('socket.write');
  }

  end() {
    return this.destroySoon();
  }

  setNoDelay() {
    return this;
  }

  setKeepAlive() {
    return this;
  }

  pause() {
    return this;
  }

  resume() {
    return this;
  }

  ref() {
    return this;
  }

  unref() {
    return this;
  }

  cork() {}

  uncork() {}
}

/// The socket that a listener of 'clientError' gets: what it writes becomes the answer.
class RefusedSocket extends EventEmitter {
  constructor() {
    super();
    this.writable = true;
    this.destroyed = false;
    this.bytesWritten = 0;
    this.answer = undefined;
  }

  write(chunk, encoding) {
    const { Buffer } = require('buffer');
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk;
    if (this.writable) this.answer = (this.answer ?? '') + Buffer.from(bytes).toString('latin1');
    return true;
  }

  end(chunk, encoding) {
    if (chunk !== undefined && typeof chunk !== 'function') this.write(chunk, encoding);
    this.answer ??= '';
    this.writable = false;
    return this;
  }

  destroy() {
    this.destroyed = true;
    return this.end();
  }

  destroySoon() {
    return this.destroy();
  }
}

module.exports = { Socket, RefusedSocket };
