// SPDX-License-Identifier: BSL-1.0
//! A host for tests: memory in a vector, a wire that keeps what was sent, interrupts that are counted.
