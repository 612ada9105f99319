// SPDX-License-Identifier: BSL-1.0
// The module `diagnostics_channel`: named lists of subscribers.
'use strict';

const channels = new Map();

class Channel {
  constructor(name) {
    this.name = name;
    this._subscribers = [];
  }

  get hasSubscribers() {
    return this._subscribers.length > 0;
  }

  subscribe(subscriber) {
    this._subscribers = [...this._subscribers, subscriber];
  }

  unsubscribe(subscriber) {
    const before = this._subscribers.length;
    this._subscribers = this._subscribers.filter((other) => other !== subscriber);
    return this._subscribers.length < before;
  }

  publish(message) {
    for (const subscriber of this._subscribers) subscriber(message, this.name);
  }
}

function channel(name) {
  if (!channels.has(name)) channels.set(name, new Channel(name));
  return channels.get(name);
}

module.exports = {
  Channel,
  channel,
  hasSubscribers: (name) => channels.has(name) && channels.get(name).hasSubscribers,
  subscribe: (name, subscriber) => channel(name).subscribe(subscriber),
  unsubscribe: (name, subscriber) => channel(name).unsubscribe(subscriber),
};
