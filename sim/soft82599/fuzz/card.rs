// SPDX-License-Identifier: BSL-1.0
//! Fuzzes the card with arbitrary actions of a driver and a peer. The card must not panic, hang, or grow. libFuzzer detects panics, its
//! -timeout detects hangs, and its -rss_limit_mb and the bounds in the host detect growth.
#![no_main]

mod host;
mod operations;
mod tally;

libfuzzer_sys::fuzz_target!(|data: &[u8]| tally::add(operations::run(data)));
