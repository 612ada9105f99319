// SPDX-License-Identifier: BSL-1.0
//! Parses the text of a fault on demand, from the control socket or the command line.

use crate::cable::Cable;
use crate::card_host::CardHost;
use card::{Card, Direction, Nanoseconds, Trigger};

pub const KNOWN: &str = "drop|corrupt|reorder rx|tx|both WHICH, delay rx|tx|both NS WHICH, hang rx|tx QUEUE, free rx|tx QUEUE, late NS, \
     lose VECTOR|any WHICH, stale-head NS WHICH, ecc, eeprom, away, back, unplug, off; WHICH: next N, chance P [SEED], all";

const QUEUE_MAX: usize = 127;
const VECTOR_MAX: u8 = 63;
/// One hour. A longer delay is probably a mistake.
const DELAY_NS_MAX: Nanoseconds = 3_600_000_000_000;

#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    Frames {
        kind: Kind,
        receive: bool,
        transmit: bool,
        trigger: Trigger,
    },
    Hang {
        direction: Direction,
        queue: usize,
        hung: bool,
    },
    Late(Nanoseconds),
    Lose {
        vector: Option<u8>,
        trigger: Trigger,
    },
    /// Writes old transmit heads again later, over newer heads.
    StaleHead(Nanoseconds, Trigger),
    /// The card reports one memory error.
    Ecc,
    /// Flips the EEPROM's checksum between right and wrong.
    Eeprom,
    Away(bool),
    /// Asks the client to unplug the device, like a manual removal of the card.
    Unplug,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Drop,
    Corrupt,
    Reorder,
    Delay(Nanoseconds),
}

/// The seed of a random fault whose text gives no seed.
const SEED: u64 = 1;

/// Parses a fault. An error is one line that says what is wrong.
pub fn parse(text: &str) -> Result<Fault, String> {
    parse_seeded(text, SEED)
}

/// Like `parse`. `seed` is used for a random fault whose text gives no seed.
pub fn parse_seeded(text: &str, seed: u64) -> Result<Fault, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    known(&words, seed).ok_or_else(|| format!("fault {text}: known are {KNOWN}"))
}

fn known(words: &[&str], seed: u64) -> Option<Fault> {
    Some(match *words {
        ["drop", way, ref which @ ..] => frames(Kind::Drop, way, which, seed)?,
        ["corrupt", way, ref which @ ..] => frames(Kind::Corrupt, way, which, seed)?,
        ["reorder", way, ref which @ ..] => frames(Kind::Reorder, way, which, seed)?,
        ["delay", way, by, ref which @ ..] => frames(Kind::Delay(duration(by)?), way, which, seed)?,
        [word @ ("hang" | "free"), way, queue] => {
            let direction = match way {
                "rx" => Direction::Receive,
                "tx" => Direction::Transmit,
                _ => return None,
            };
            let queue = queue.parse().ok().filter(|&queue| queue <= QUEUE_MAX)?;
            Fault::Hang { direction, queue, hung: word == "hang" }
        }
        ["late", by] => Fault::Late(duration(by)?),
        ["lose", vector, ref which @ ..] => {
            let vector = if vector == "any" { None } else { Some(vector.parse().ok().filter(|&number| number <= VECTOR_MAX)?) };
            Fault::Lose { vector, trigger: trigger(which, seed)? }
        }
        ["stale-head", by, ref which @ ..] => Fault::StaleHead(duration(by)?, trigger(which, seed)?),
        ["ecc"] => Fault::Ecc,
        ["eeprom"] => Fault::Eeprom,
        ["away"] => Fault::Away(true),
        ["back"] => Fault::Away(false),
        ["unplug"] => Fault::Unplug,
        ["off"] => Fault::Off,
        _ => return None,
    })
}

fn frames(kind: Kind, way: &str, which: &[&str], seed: u64) -> Option<Fault> {
    let (receive, transmit) = match way {
        "rx" => (true, false),
        "tx" => (false, true),
        "both" => (true, true),
        _ => return None,
    };
    Some(Fault::Frames { kind, receive, transmit, trigger: trigger(which, seed)? })
}

fn duration(text: &str) -> Option<Nanoseconds> {
    text.parse().ok().filter(|&by| by <= DELAY_NS_MAX)
}

fn trigger(words: &[&str], seed: u64) -> Option<Trigger> {
    let chance = |text: &str, seed| Some(Trigger::chance(text.parse().ok().filter(|p| (0.0..=1.0).contains(p))?, seed));
    match *words {
        ["next", count] => count.parse().ok().filter(|&count: &u64| count != 0).map(Trigger::Next),
        ["chance", probability] => chance(probability, seed),
        ["chance", probability, seed] => chance(probability, seed.parse().ok()?),
        ["all"] => Some(Trigger::chance(1.0, SEED)),
        _ => None,
    }
}

impl Fault {
    pub fn apply(&self, card: &mut Card, host: &mut CardHost, cable: &mut Cable) {
        let now = host.clock.now();
        match *self {
            Self::Frames { kind, receive, transmit, trigger } => {
                let ways = [(receive, &mut host.receive_faults), (transmit, &mut host.transmit_faults)];
                for (_, faults) in ways.into_iter().filter(|(wanted, _)| *wanted) {
                    match kind {
                        Kind::Drop => faults.drop = trigger,
                        Kind::Corrupt => faults.corrupt = trigger,
                        Kind::Reorder => faults.reorder = trigger,
                        Kind::Delay(by) => (faults.delay, faults.delay_by) = (trigger, by),
                    }
                }
            }
            Self::Hang { direction, queue, hung } => card.hang_queue(host, now, direction, queue, hung),
            Self::Late(by) => card.delay_write_back(by),
            Self::Lose { vector, trigger } => card.lose_messages(vector, trigger),
            Self::StaleHead(by, trigger) => card.repeat_heads(by, trigger),
            Self::Ecc => card.fail_memory(host, now),
            Self::Eeprom => card.flip_eeprom_bit(),
            Self::Away(gone) => card.set_removed(host, now, gone),
            Self::Unplug => host.eventfds.request(),
            Self::Off => {
                host.receive_faults.end();
                host.transmit_faults.end();
                card.end_faults(host, now);
                cable.set(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_parsed() {
        for (text, fault) in [
            ("drop rx next 3", Fault::Frames { kind: Kind::Drop, receive: true, transmit: false, trigger: Trigger::Next(3) }),
            (
                "delay both 5000 chance 0.25 7",
                Fault::Frames { kind: Kind::Delay(5000), receive: true, transmit: true, trigger: Trigger::chance(0.25, 7) },
            ),
            ("hang tx 127", Fault::Hang { direction: Direction::Transmit, queue: 127, hung: true }),
            ("free rx 0", Fault::Hang { direction: Direction::Receive, queue: 0, hung: false }),
            ("lose any next 1", Fault::Lose { vector: None, trigger: Trigger::Next(1) }),
            ("lose 63 all", Fault::Lose { vector: Some(63), trigger: Trigger::chance(1.0, 1) }),
            ("late 1000000", Fault::Late(1_000_000)),
            ("stale-head 5000 next 2", Fault::StaleHead(5000, Trigger::Next(2))),
            ("ecc", Fault::Ecc),
            ("eeprom", Fault::Eeprom),
            ("back", Fault::Away(false)),
        ] {
            assert_eq!(parse(text), Ok(fault), "{text}");
        }
    }

    #[test]
    fn a_chance_without_a_seed_takes_the_given_one() {
        let of = |text: &str| parse_seeded(text, 9).unwrap();
        assert_eq!(of("drop rx chance 0.5"), parse("drop rx chance 0.5 9").unwrap());
        assert_eq!(of("drop rx chance 0.5 3"), parse("drop rx chance 0.5 3").unwrap());
    }

    #[test]
    fn an_invalid_fault_is_refused_and_named() {
        for text in [
            "",
            "drop",
            "drop rx",
            "drop up next 1",
            "drop rx next 0",
            "drop rx next -1",
            "drop rx chance 1.5",
            "drop rx chance NaN",
            "delay rx next 1",
            "delay rx 99999999999999999 all",
            "hang rx 128",
            "hang both 0",
            "lose 64 all",
            "late",
            "stale-head 5",
            "away now",
            "explode",
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(text) && message.contains("known are"), "{message}");
        }
    }
}
