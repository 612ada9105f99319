// SPDX-License-Identifier: BSL-1.0
//! Events in the order of virtual time.
//!
//! Two runs with equal options MUST handle equal events in an equal order. Times alone do not give an order, because events often fall on
//! the same nanosecond. So an event also has a rank, which is fixed for its kind, and a sequence number, in which events were added.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

struct Entry<E> {
    at_ns: u64,
    rank: u8,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (u64, u8, u64) {
        (self.at_ns, self.rank, self.sequence)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

pub struct Agenda<E> {
    entries: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> Agenda<E> {
    /// Of events at the same time, a lower rank comes first; of equal ranks, the one that was added first.
    pub fn add(&mut self, at_ns: u64, rank: u8, event: E) {
        self.entries.push(Reverse(Entry { at_ns, rank, sequence: self.sequence, event }));
        self.sequence += 1;
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.entries.peek().map(|Reverse(entry)| entry.at_ns)
    }

    /// Takes the next event that is due at `now_ns`.
    pub fn take_due(&mut self, now_ns: u64) -> Option<E> {
        self.next_ns().filter(|&at_ns| at_ns <= now_ns)?;
        self.entries.pop().map(|Reverse(entry)| entry.event)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_are_broken_by_rank_and_then_by_the_order_of_addition() {
        let mut agenda = Agenda::default();
        for (at_ns, rank, event) in [(5, 1, 'd'), (5, 0, 'b'), (9, 0, 'f'), (5, 0, 'c'), (1, 9, 'a'), (5, 1, 'e')] {
            agenda.add(at_ns, rank, event);
        }
        assert_eq!(agenda.next_ns(), Some(1));
        let due: String = std::iter::from_fn(|| agenda.take_due(5)).collect();
        assert_eq!((due.as_str(), agenda.next_ns(), agenda.len()), ("abcde", Some(9), 1));
        assert_eq!((agenda.take_due(8), agenda.take_due(9), agenda.is_empty()), (None, Some('f'), true));
    }
}
