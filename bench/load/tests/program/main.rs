// SPDX-License-Identifier: BSL-1.0
//! The program as a person runs it, against a server whose delays and faults are known.
//!
//! Machines that run tests are busy. So no time on the wall is asserted: what the program measured is held against what the server says
//! that it really did.

mod accuracy;
mod agents;
mod common;
mod failures;
mod reports;
