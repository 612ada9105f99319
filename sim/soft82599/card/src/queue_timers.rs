// SPDX-License-Identifier: BSL-1.0
//! One timer for each of many queues. Finding the next due time costs one look-up, independent of the number of queues and timers.

use crate::host::Nanoseconds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Default)]
pub struct QueueTimers {
    /// Due time and queue; each queue at most once.
    heap: BinaryHeap<Reverse<(Nanoseconds, u8)>>,
    /// Bit q: queue q is in the heap.
    armed: u128,
}

impl QueueTimers {
    pub fn armed(&self) -> u128 {
        self.armed
    }

    /// Arms the queue's timer. A timer that is already armed keeps its time.
    pub fn arm(&mut self, queue: usize, at: Nanoseconds) {
        if self.armed >> queue & 1 == 0 {
            self.armed |= 1 << queue;
            self.heap.push(Reverse((at, queue as u8)));
        }
    }

    pub fn disarm(&mut self, queue: usize) {
        if self.armed >> queue & 1 != 0 {
            self.armed &= !(1 << queue);
            self.heap.retain(|Reverse((_, other))| usize::from(*other) != queue);
        }
    }

    pub fn clear(&mut self) {
        self.heap.clear();
        self.armed = 0;
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Disarms the earliest timer that is due, and returns its queue.
    pub fn take_due(&mut self, now: Nanoseconds) -> Option<usize> {
        let Reverse((at, queue)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        self.armed &= !(1 << queue);
        Some(usize::from(queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_become_due_once_in_order_of_time() {
        let mut timers = QueueTimers::default();
        for (queue, at) in [(127, 30), (0, 10), (5, 20), (0, 5)] {
            timers.arm(queue, at);
        }
        timers.disarm(5);
        timers.disarm(6);
        assert_eq!((timers.next_deadline(), timers.take_due(9)), (Some(10), None));
        assert_eq!(std::iter::from_fn(|| timers.take_due(100)).collect::<Vec<_>>(), [0, 127]);
        assert_eq!((timers.next_deadline(), timers.armed()), (None, 0));
    }
}
