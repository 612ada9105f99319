// SPDX-License-Identifier: BSL-1.0
//! The outside half of the model machine: the software 82599, a switch, client hosts and a memcached load on one virtual clock, which the
//! program that runs the guest's CPUs drives.
//!
//! If the load is a program beside an emulated machine, measurements depend on the host: both compete for its cores, and neither sees the
//! other's time. Here network, clients and load have no time of their own. A run repeats exactly, whatever the host does.

pub mod agenda;
pub mod clients;
pub mod connection;
pub mod counts;
pub mod digest;
pub mod event_loop;
pub mod experiment;
pub mod flood;
pub mod guest;
pub mod impairments;
pub mod incidents;
pub mod link;
pub mod load;
pub mod load_words;
pub mod machine;
pub mod neap_control;
pub mod network_frame;
pub mod options;
pub mod pair;
pub mod pair_loop;
mod pair_side;
pub mod plan;
pub mod report;
pub mod stage;
pub mod start;
pub mod steering;
pub mod switch;
mod timestamps;
pub mod world;
