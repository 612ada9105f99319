// SPDX-License-Identifier: BSL-1.0
//! Runs the program against a server whose delays and faults are known.
//!
//! Machines that run tests are busy, so no wall-clock time is asserted. Measured figures are compared with the figures that the server
//! recorded.

mod accuracy;
mod agents;
mod common;
mod failures;
mod http;
mod manual;
mod reports;
