// SPDX-License-Identifier: BSL-1.0
//! The Intel 82599 as a value.
//!
//! A driver sees a card as registers, rings in its own memory and interrupts. This crate is just that: `Card` takes register accesses and
//! frames, and answers through the `Host` trait, which gives it the guest's memory, interrupts and the wire. It does no I/O, reads no clock
//! (every call brings the time with it) and starts no thread, so the same card runs behind QEMU, under a test's clock and under a fuzzer.
//! Nothing a guest writes may make it panic, loop without end or grow without bound.
//!
//! Where to look: `register_actions.rs` takes a register access to the block it belongs to; each other file is one block of the card and
//! opens with what that block does and where the datasheet (Intel 331520) describes it.

mod access_counters;
mod bus;
mod card;
mod checksum;
mod config_space;
mod describe;
mod eeprom;
mod eeprom_pins;
mod faults;
mod flow_control;
mod flow_director;
mod host;
mod i2c;
mod interrupt_registers;
mod interrupt_trace;
mod interrupts;
mod l2_filter;
mod link;
pub mod mac_control;
mod mdio;
mod moderation;
mod packet_buffer;
mod parse;
mod pools;
mod queue_select;
mod queue_timers;
mod rate_limit;
mod receive;
mod receive_checks;
mod receive_queue;
mod receive_write;
mod register_actions;
mod registers;
mod report;
mod reset;
mod rsc;
mod rss;
mod rules;
mod segmentation;
mod semaphores;
mod sfp_module;
mod statistics;
mod tcp_timer;
mod transmit;
mod transmit_buffer;
mod transmit_packet;
mod transmit_queue;
mod write_back;

pub use card::{Card, Configuration};
pub use config_space::CONFIG_SPACE_BYTES;
pub use faults::{Direction, Faults, Trigger};
pub use host::{DmaFault, Host, Nanoseconds};
pub use interrupt_trace::{Causes, Entry, Event, InterruptTrace};
pub use registers::{name_at, BAR_BYTES};
pub use report::Violation;

#[cfg(test)]
mod tests;
