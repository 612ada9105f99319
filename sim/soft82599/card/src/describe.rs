// SPDX-License-Identifier: BSL-1.0
//! Describes the card's state as text for debugging: first the state that each block keeps outside the registers, then every register that
//! does not have its initial value. Describing changes nothing: no counter is cleared, no semaphore taken.

use crate::card::Card;
use crate::registers::{field, place_of, Register, SLOTS};
use std::fmt::Write;

// Modes of an LED in LEDCTL.
const LED_LINK_UP: u32 = 0;
const LED_10_GIGABIT: u32 = 1;
const LED_LINK_ACTIVE: u32 = 4;
const LED_1_GIGABIT: u32 = 5;
const LED_ON: u32 = 14;

impl Card {
    /// Returns the state as text of many lines.
    pub fn describe(&self) -> String {
        let mut out = String::new();
        self.describe_whole(&mut out);
        self.describe_queues(&mut out);
        self.interrupts.describe(&mut out);
        self.describe_faults(&mut out);
        self.describe_registers(&mut out);
        out
    }

    fn describe_whole(&self, out: &mut String) {
        let mac: Vec<String> = self.mac.iter().map(|byte| format!("{byte:02x}")).collect();
        let is_on = |register, bit: crate::registers::Field| u8::from(bit.is_set(self.regs.get(register)));
        let _ = writeln!(
            out,
            "model {} mac {} link {} peer {} laser {} bus master {} receive {} transmit {}",
            self.model.name,
            mac.join(":"),
            if self.link.is_up() { "up" } else { "down" },
            u8::from(self.link.has_peer()),
            u8::from(self.link.laser_is_on()),
            u8::from(self.may_do_dma()),
            is_on(Register::Rxctrl, field::rxctrl::ENABLE),
            is_on(Register::Dmatxctl, field::dmatxctl::ENABLE),
        );
        if let Some(phy) = &self.phy {
            let _ = writeln!(out, "PHY: speed {:?} low power {}", phy.speed(), u8::from(phy.is_in_low_power_mode()));
        }
        if let Some(at) = self.link.next_deadline() {
            let _ = writeln!(out, "link: next change at {at} ns");
        }
        let mut config = [0; 0xC0];
        self.config.read(0, &mut config);
        let word = |at: usize| u16::from_le_bytes([config[at], config[at + 1]]);
        let _ = writeln!(
            out,
            "configuration space: command {:#06x} status {:#06x} power {:#06x} msi {:#06x} msix {:#06x} device control {:#06x}",
            word(0x04),
            word(0x06),
            word(0x44),
            word(0x52),
            word(0x72),
            word(0xA8),
        );
        let _ = writeln!(
            out,
            "laser {} forced link {} leds {} TCP timer {:?}",
            u8::from(self.link.laser_is_on()),
            u8::from(field::autoc::FORCE_LINK_UP.is_set(self.regs.get(Register::Autoc))),
            self.leds(),
            self.tcp_timer
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
            "open coalescings {} flow director filters {} transmit queues held by the peer {} frames on their way back {}",
            self.rsc.open_contexts(),
            self.queue_select.flow_director.filters(),
            self.flow_control.held_queues().count_ones(),
            self.looped_back.len(),
        );
        for (what, at) in [("coalescing", self.rsc.next_deadline()), ("flow control", self.flow_control.next_deadline())] {
            if let Some(at) = at {
                let _ = writeln!(out, "{what}: next deadline at {at} ns");
            }
        }
    }

    fn describe_queues(&self, out: &mut String) {
        for (i, q) in self.receive_queues.iter().enumerate().filter(|(_, q)| q.enabled || q.length != 0) {
            let _ = writeln!(
                out,
                "receive {i}: enabled {} base {:#x} length {} head {} tail {} buffers {} headers {} form {:?} coalesce {} drop {} strip {}",
                u8::from(q.enabled),
                q.base,
                q.length,
                q.head,
                q.tail,
                q.buffer_bytes,
                q.header_bytes,
                q.form,
                q.coalesce.unwrap_or(0),
                u8::from(q.drop),
                u8::from(q.strip_vlan),
            );
        }
        for (i, q) in self.transmit_queues.iter().enumerate().filter(|(_, q)| q.enabled || q.length != 0) {
            let _ = writeln!(
                out,
                "transmit {i}: enabled {} base {:#x} length {} head {} tail {} ready {} waits for its rate {} \
                 reports waiting {} gathered bytes {}",
                u8::from(q.enabled),
                q.base,
                q.length,
                q.head,
                q.tail,
                (self.transmit_ready >> i) & 1,
                (self.rate_timers.armed() >> i) & 1,
                q.write_back.waiting(),
                q.packet.filled
            );
        }
    }

    fn describe_faults(&self, out: &mut String) {
        let faults = &self.faults;
        let _ = writeln!(
            out,
            "faults: away {} hung rx {:#x} tx {:#x} write-backs late by {} ns, waiting {}; lost messages: {}; stale heads: {}",
            u8::from(faults.gone),
            faults.hung_receive,
            faults.hung_transmit,
            faults.write_back_delay,
            faults.late_write_backs(),
            self.interrupts.loss(),
            faults.stale_heads,
        );
        let _ = writeln!(out, "violations: {}", self.report.total());
        for text in self.report.recent() {
            let _ = writeln!(out, "violation: {text}");
        }
    }

    /// Describes the register file. Registers whose values are computed on reads are described with their blocks.
    fn describe_registers(&self, out: &mut String) {
        for slot in 0..SLOTS {
            let place = place_of(slot);
            let value = self.regs.get_at(place.register, place.index as usize);
            let initial = self.model.initial(place);
            if value != initial {
                let _ = writeln!(out, "register {}: {value:#010x}, initially {initial:#010x}", place.name());
            }
        }
    }

    /// Returns the four LEDs as LEDCTL sets them (8.2.3.1.6): `#` on, `.` off, `*` blinking. Activity LEDs are shown as off.
    fn leds(&self) -> String {
        use field::ledctl::*;
        let control = self.regs.get(Register::Ledctl);
        let speed = field::links::SPEED.get(self.regs.get(Register::Links));
        (0..4)
            .map(|led| {
                // Each LED has a byte of the same layout.
                let one = control >> (8 * led);
                let lit = match LED0_MODE.get(one) {
                    LED_LINK_UP | LED_LINK_ACTIVE => self.link.is_up(),
                    LED_10_GIGABIT => self.link.is_up() && speed == 3,
                    LED_1_GIGABIT => self.link.is_up() && speed == 2,
                    LED_ON => true,
                    _ => false,
                };
                match (lit != LED0_INVERT.is_set(one), LED0_BLINK.is_set(one)) {
                    (true, true) => '*',
                    (true, false) => '#',
                    (false, _) => '.',
                }
            })
            .collect()
    }
}
