// SPDX-License-Identifier: BSL-1.0
//! Resets (datasheet 4.2): what each kind takes back.
//!
//! Software reset (CTRL.rst), link reset (CTRL.lrst) and function level reset set registers, rings, filters, interrupts and statistics back
//! and load from the EEPROM again. They differ in what they keep: the software reset the link, which the two others train anew; both resets
//! by CTRL the configuration space and the semaphores, which the function level reset sets back. The EEPROM's contents, the cable and
//! what tests have asked for outlive all of them. All are done at once, so the reset bits read back as zero.

use crate::card::Card;
use crate::eeprom_pins::Pins;
use crate::flow_control::FlowControl;
use crate::host::{Host, Nanoseconds};
use crate::rate_limit::QueueSettings;
use crate::registers::{field, Register};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Software,
    Link,
    Function,
}

impl Card {
    pub(crate) fn reset(&mut self, host: &mut impl Host, now: Nanoseconds, kind: Kind) {
        // What QPRDC holds nobody will read any more.
        let dropped: u64 = (0..Register::Qprdc.info().count).map(|set| u64::from(self.regs.get_at(Register::Qprdc, set as usize))).sum();
        self.unseen.by_reset += self.packet_buffer.frames() as u64 + self.rsc.open_frames() + self.faults.forget_late() + dropped;
        let semaphores = [Register::Swsm, Register::SwFwSync].map(|register| (register, self.regs.get(register)));
        self.regs.reset();
        if kind != Kind::Function {
            for (register, value) in semaphores {
                self.regs.set(register, value);
            }
        }
        self.receive_queues.fill(Default::default());
        for queue in &mut self.transmit_queues {
            *queue = Default::default();
        }
        self.transmit_ready = 0;
        self.transmit_backlog = false;
        self.queue_settings = QueueSettings::new();
        self.rate_timers.clear();
        self.write_back_timers.clear();
        self.packet_buffer.clear();
        self.interrupts.reset(host);
        self.tcp_timer = Default::default();
        self.load_from_eeprom();
        self.l2_filter.update(&self.regs);
        self.queue_select.reset(&self.regs);
        self.pools.update(&self.regs);
        self.flow_control = FlowControl::new();
        self.rsc.forget();
        self.statistics = Default::default();
        self.eeprom_pins = Pins::new();
        // The pins are inputs again, which lets the laser shine; the link's mode is the EEPROM's.
        self.link.set_laser(&mut self.regs, now, true);
        self.link.configure(&mut self.regs, now);
        if kind != Kind::Software {
            self.link.restart(&mut self.regs, now);
        }
        self.link.show(&mut self.regs);
    }

    /// What the card loads by itself: its address into the first filter, and that it is done.
    fn load_from_eeprom(&mut self) {
        let mac = self.eeprom.mac();
        self.regs.set(Register::Autoc, self.eeprom.autoc());
        self.regs.set(Register::Ral, u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]));
        self.regs.set(Register::Rah, u32::from(u16::from_le_bytes([mac[4], mac[5]])) | field::rah::VALID.ones());
        // A filter feeds pool 0 as long as nobody says otherwise.
        self.regs.set(Register::MpsarLo, 1);
        self.regs.set(Register::Eemngctl, field::eemngctl::CFG_DONE0.ones() | field::eemngctl::CFG_DONE1.ones());
        self.regs.set(Register::Rdrxctl, Register::Rdrxctl.info().reset | field::rdrxctl::DMA_INIT_DONE.ones());
        self.regs.set(Register::Secrxstat, field::secrxstat::READY.ones());
        self.regs.set(Register::Sectxstat, field::sectxstat::READY.ones());
        let pins = if self.module_present { field::esdp::SDP2_DATA.ones() } else { 0 };
        self.regs.set(Register::Esdp, pins);
    }
}
