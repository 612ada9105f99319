// SPDX-License-Identifier: BSL-1.0
//! The client's eventfds: the destinations of messages and of the INTx line.
//!
//! The client keeps the tables of MSI and MSI-X and gives this program one eventfd per vector. As VFIO specifies, an INTx interrupt masks
//! INTx until the client unmasks it. If the line is still asserted when it is unmasked, INTx fires again.

use super::protocol::{flag, irq};
use crate::sys;
use std::os::fd::{AsFd, OwnedFd};

pub const MSIX_VECTORS: usize = 64;

#[derive(Default)]
pub struct Eventfds {
    intx: Option<OwnedFd>,
    intx_masked: bool,
    line: bool,
    msi: Option<OwnedFd>,
    msix: Vec<Option<OwnedFd>>,
    error: Option<OwnedFd>,
    request: Option<OwnedFd>,
    /// `Some`: each MSI-X message sets the bit of its vector here, and signals no eventfd. See `collect_messages`.
    collected: Option<u64>,
}

impl Eventfds {
    /// From now on MSI-X messages are collected, one bit for each vector, and signal no eventfd. A program that drives the card's clock
    /// delivers the messages itself, at the virtual time at which the card sent them.
    pub fn collect_messages(&mut self) {
        self.collected = Some(0);
    }

    /// Returns the vectors whose messages were sent since the last call.
    pub fn take_messages(&mut self) -> u64 {
        self.collected.as_mut().map_or(0, std::mem::take)
    }

    /// Closes all eventfds, because the client has disconnected.
    pub fn clear(&mut self) {
        *self = Self { collected: self.collected.map(|_| 0), ..Self::default() };
    }

    /// Returns the flags and the number of interrupts of the kind `index`.
    pub fn info(index: u32) -> (u32, u32) {
        match index {
            irq::INTX => (flag::IRQ_EVENTFD | flag::IRQ_MASKABLE | flag::IRQ_AUTOMASKED, 1),
            irq::MSI => (flag::IRQ_EVENTFD | flag::IRQ_NORESIZE, 1),
            irq::MSIX => (flag::IRQ_EVENTFD | flag::IRQ_NORESIZE, MSIX_VECTORS as u32),
            irq::ERROR | irq::REQUEST => (flag::IRQ_EVENTFD | flag::IRQ_NORESIZE, 1),
            _ => (0, 0),
        }
    }

    /// Handles one SET_IRQS. Returns false if it is invalid.
    pub fn set(&mut self, index: u32, flags: u32, start: u32, count: u32, descriptors: Vec<OwnedFd>) -> bool {
        let (_, count_max) = Self::info(index);
        if start.checked_add(count).is_none_or(|end| end > count_max) || flags & flag::SET_DATA_BOOL != 0 {
            return false;
        }
        if flags & flag::SET_MASK != 0 {
            self.intx_masked |= index == irq::INTX;
            return true;
        }
        if flags & flag::SET_UNMASK != 0 {
            if index == irq::INTX {
                self.intx_masked = false;
                self.fire_intx();
            }
            return true;
        }
        if flags & flag::SET_TRIGGER == 0 {
            return false;
        }
        if flags & flag::SET_DATA_NONE != 0 {
            if count == 0 {
                self.disable(index);
            } else {
                (start..start + count).for_each(|number| self.trigger(index, number));
            }
            return true;
        }
        if flags & flag::SET_DATA_EVENTFD == 0 || descriptors.len() > count as usize {
            return false;
        }
        let mut descriptors = descriptors.into_iter();
        for number in start..start + count {
            // Interrupts without a descriptor are disabled.
            *self.place(index, number) = descriptors.next();
        }
        if index == irq::INTX {
            self.intx_masked = false;
            self.fire_intx();
        }
        true
    }

    fn place(&mut self, index: u32, number: u32) -> &mut Option<OwnedFd> {
        match index {
            irq::INTX => &mut self.intx,
            irq::MSI => &mut self.msi,
            irq::MSIX => {
                self.msix.resize_with(MSIX_VECTORS, || None);
                &mut self.msix[number as usize]
            }
            irq::ERROR => &mut self.error,
            _ => &mut self.request,
        }
    }

    fn disable(&mut self, index: u32) {
        match index {
            irq::MSIX => self.msix.clear(),
            _ => *self.place(index, 0) = None,
        }
    }

    fn trigger(&mut self, index: u32, number: u32) {
        if let Some(descriptor) = self.place(index, number) {
            sys::signal_eventfd(descriptor.as_fd());
        }
    }

    /// Asks the client to unplug the device.
    pub fn request(&mut self) {
        self.trigger(irq::REQUEST, 0);
    }

    /// Passes a message of the card to the client. With plain MSI there is only vector 0; without MSI and MSI-X no message is sent.
    pub fn message(&mut self, vector: u8) {
        if let Some(collected) = self.collected.as_mut().filter(|_| !self.msix.is_empty()) {
            *collected |= 1u64.checked_shl(vector.into()).unwrap_or(0);
            return;
        }
        let descriptor = match self.msix.get(usize::from(vector)) {
            Some(descriptor) => descriptor,
            None if vector == 0 => &self.msi,
            None => return,
        };
        if let Some(descriptor) = descriptor {
            sys::signal_eventfd(descriptor.as_fd());
        }
    }

    pub fn line(&mut self, asserted: bool) {
        self.line = asserted;
        self.fire_intx();
    }

    fn fire_intx(&mut self) {
        if !self.line || self.intx_masked {
            return;
        }
        if let Some(descriptor) = &self.intx {
            self.intx_masked = true;
            sys::signal_eventfd(descriptor.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collected_messages_signal_no_eventfd_and_are_taken_once() {
        let mut eventfds = Eventfds::default();
        eventfds.collect_messages();
        eventfds.message(0);
        assert_eq!(eventfds.take_messages(), 0, "without MSI-X there is no message");
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(eventfds.set(irq::MSIX, flag::SET_DATA_EVENTFD | flag::SET_TRIGGER, 0, 2, vec![file]));
        eventfds.message(1);
        eventfds.message(63);
        assert_eq!((eventfds.take_messages(), eventfds.take_messages()), (1 << 63 | 2, 0));
        eventfds.message(5);
        eventfds.clear();
        assert_eq!(eventfds.take_messages(), 0);
    }
}
