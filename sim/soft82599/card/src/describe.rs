// SPDX-License-Identifier: BSL-1.0
//! The card's state in words, for whoever wonders why nothing moves.

use crate::card::Card;
use crate::registers::{field, Register};
use std::fmt::Write;

impl Card {
    /// The state in words, many lines.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        let mac = self.mac;
        let _ = writeln!(
            out,
            "mac {:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x} link {} peer {} bus master {} receive {} transmit {}",
            mac[0],
            mac[1],
            mac[2],
            mac[3],
            mac[4],
            mac[5],
            if self.link.is_up() { "up" } else { "down" },
            u8::from(self.link.has_peer()),
            u8::from(self.may_do_dma()),
            u8::from(field::rxctrl::ENABLE.is_set(self.regs.get(Register::Rxctrl))),
            u8::from(field::dmatxctl::ENABLE.is_set(self.regs.get(Register::Dmatxctl))),
        );
        let _ = writeln!(
            out,
            "packet buffer: frames {} bytes {} paused {}",
            self.packet_buffer.frames(),
            self.packet_buffer.bytes(),
            u8::from(self.packet_buffer.is_paused())
        );
        let _ = writeln!(
            out,
            "open coalescings {} flow director filters {} transmit queues held by the peer {}",
            self.rsc.open_contexts(),
            self.queue_select.flow_director.filters(),
            self.flow_control.held_queues().count_ones()
        );
        for (i, q) in self.receive_queues.iter().enumerate().filter(|(_, q)| q.enabled || q.length != 0) {
            let _ = writeln!(
                out,
                "receive {i}: enabled {} base {:#x} length {} head {} tail {}",
                u8::from(q.enabled),
                q.base,
                q.length,
                q.head,
                q.tail
            );
        }
        for (i, q) in self.transmit_queues.iter().enumerate().filter(|(_, q)| q.enabled || q.length != 0) {
            let _ = writeln!(
                out,
                "transmit {i}: enabled {} base {:#x} length {} head {} tail {} ready {}",
                u8::from(q.enabled),
                q.base,
                q.length,
                q.head,
                q.tail,
                (self.transmit_ready >> i) & 1
            );
        }
        self.interrupts.describe(&mut out);
        out
    }
}
