// SPDX-License-Identifier: BSL-1.0
//! The card on a virtual PCI bus: the server's side of vfio-user.

pub mod connection;
pub mod interrupts;
pub mod protocol;
pub mod server;
