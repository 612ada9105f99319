// SPDX-License-Identifier: BSL-1.0
//! A model of the Intel 82599, and of its successors X540 and X550 (model.rs).
//!
//! For a driver, a card consists of registers, rings in the driver's memory, and interrupts. This crate models exactly these parts: `Card`
//! takes register accesses and frames, and uses the `Host` trait for the guest's memory, interrupts and the wire. It does no I/O, reads no
//! clock (every call carries the time) and starts no thread. So the same code runs behind QEMU, in tests and in a fuzzer. No write of a
//! guest may make the model panic, loop forever or grow without bound.
//!
//! `register_actions.rs` passes a register access to its block. Each other file is one block of the card. Each file begins with the block's
//! function and its sections of the datasheet (Intel 331520).

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
mod host_interface;
mod i2c;
mod interrupt_registers;
mod interrupt_trace;
mod interrupts;
mod l2_filter;
mod link;
pub mod mac_control;
mod model;
mod moderation;
mod packet_buffer;
mod parse;
mod phy;
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
pub use model::Model;
pub use registers::{name_at, BAR_BYTES};
pub use report::Violation;

#[cfg(test)]
mod tests;
