// SPDX-License-Identifier: BSL-1.0
// performance: the time since boot, in milliseconds with fractions.
'use strict';

const { now, timeOrigin } = internalBinding('process');

const marks = new Map();

module.exports = {
  now,
  timeOrigin: timeOrigin(),
  mark(name) {
    const entry = { name: String(name), entryType: 'mark', startTime: now(), duration: 0 };
    marks.set(entry.name, entry);
    return entry;
  },
  measure(name, from, to) {
    const begin = from === undefined ? 0 : marks.get(from)?.startTime;
    const end = to === undefined ? now() : marks.get(to)?.startTime;
    if (begin === undefined || end === undefined) throw new DOMException('The mark does not exist', 'SyntaxError');
    return { name: String(name), entryType: 'measure', startTime: begin, duration: end - begin };
  },
  clearMarks(name) {
    if (name === undefined) marks.clear();
    else marks.delete(String(name));
  },
  toJSON() {
    return { timeOrigin: this.timeOrigin };
  },
};
