// SPDX-License-Identifier: BSL-1.0
//! A software Intel 82599 for any vfio-user client.
//!
//! The card itself is the crate `card`. This crate provides its environment: the bus (vfio-user), the guest's memory, the wire, the clock
//! and a control socket. The program `soft82599` serves them by one thread (event_loop.rs). Another program may use the same parts in its
//! own loop, with a clock that it steps and a wire that it supplies (`net::supplied`).

pub mod cable;
pub mod capabilities;
pub mod card_host;
pub mod clock;
pub mod commands;
pub mod control;
pub mod event_loop;
pub mod fault_words;
pub mod guest_memory;
pub mod guest_socket;
pub mod log;
pub mod net;
pub mod options;
pub mod rig;
pub mod service_manager;
pub mod socket_file;
pub mod sys;
pub mod vfio;
