// SPDX-License-Identifier: BSL-1.0
//! Resets (datasheet 4.2).
//!
//! A software reset (CTRL.rst), a link reset (CTRL.lrst) and a function level reset return registers, rings, filters, interrupts and
//! statistics to their initial state, and load the EEPROM again. The three resets differ in what they keep. The software reset keeps the
//! link; the other two resets restart it. Both resets by CTRL keep the configuration space and the semaphores; the function level reset
//! resets these, too. No reset affects the EEPROM's contents, the cable, injected faults or the interrupt trace. All resets complete at
//! once, so the reset bits read back as zero.

use crate::card::Card;
use crate::eeprom_pins::Pins;
use crate::flow_control::FlowControl;
use crate::host::{Host, Nanoseconds};
use crate::rate_limit::QueueSettings;
use crate::registers::{field, Place, Register};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Software,
    Link,
    Function,
}

impl Card {
    pub(crate) fn reset(&mut self, host: &mut impl Host, now: Nanoseconds, kind: Kind) {
        // `by_reset` includes the frames in QPRDC, because the reset clears that counter.
        let dropped: u64 = (0..Register::Qprdc.info().count).map(|set| u64::from(self.regs.get_at(Register::Qprdc, set as usize))).sum();
        self.unseen.by_reset += self.packet_buffer.frames() as u64 + self.rsc.open_frames() + self.faults.drop_late() + dropped;
        let semaphores = [Register::Swsm, Register::SwFwSync].map(|register| (register, self.regs.get(register)));
        self.regs.reset();
        for register in [Register::Rxpbsize, Register::Hicr, Register::Eec, Register::Eewr] {
            self.regs.set(register, self.model.initial(Place { register, index: 0 }));
        }
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
        self.rsc.drop_contexts();
        self.statistics = Default::default();
        self.eeprom_pins = Pins::new();
        // The reset made the pins inputs, so a module's laser is on. The link mode was loaded from the EEPROM. Only a function level reset
        // resets a PHY, so that its speed and its low-power mode survive the reset of a driver.
        match &self.phy {
            None => _ = self.link.set_laser(&mut self.regs, now, true),
            Some(phy) if kind == Kind::Function => _ = self.link.set_power(&mut self.regs, now, phy.speed()),
            Some(_) => {}
        }
        self.link.configure(&mut self.regs, now);
        if kind != Kind::Software {
            self.link.restart(&mut self.regs, now);
        }
        self.link.show(&mut self.regs);
    }

    /// Loads the MAC address into the first filter, and sets the bits which report that loading is done.
    fn load_from_eeprom(&mut self) {
        let mac = self.eeprom.mac();
        self.regs.set(Register::Autoc, self.eeprom.autoc());
        self.regs.set(Register::Ral, u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]));
        self.regs.set(Register::Rah, u32::from(u16::from_le_bytes([mac[4], mac[5]])) | field::rah::VALID.ones());
        // By default a filter selects pool 0.
        self.regs.set(Register::MpsarLo, 1);
        self.regs.set(Register::Eemngctl, field::eemngctl::CFG_DONE0.ones() | field::eemngctl::CFG_DONE1.ones());
        self.regs.set(Register::Rdrxctl, Register::Rdrxctl.info().reset | field::rdrxctl::DMA_INIT_DONE.ones());
        self.regs.set(Register::Secrxstat, field::secrxstat::READY.ones());
        self.regs.set(Register::Sectxstat, field::sectxstat::READY.ones());
        let pins = if self.phy.is_none() { field::esdp::SDP2_DATA.ones() } else { 0 };
        self.regs.set(Register::Esdp, pins);
    }
}
