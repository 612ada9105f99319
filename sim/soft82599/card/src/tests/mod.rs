// SPDX-License-Identifier: BSL-1.0
//! Tests of the card as seen by a driver: only through registers, memory and frames.

mod coalescing;
mod driver;
mod end_to_end;
mod faults;
mod filters;
mod flow_control;
mod host;
mod interrupts;
mod ipv6;
mod models;
mod moderation;
mod moderation_model;
mod noise;
mod offload_model;
mod receive;
mod registers;
mod robustness;
mod rules;
mod self_test;
mod statistics;
mod transmit;
mod transmit_buffer;
mod write_back;
