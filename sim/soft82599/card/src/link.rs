// SPDX-License-Identifier: BSL-1.0
//! The link: up when a peer is connected, the card's laser is on and the link is not being restarted (datasheet 3.7.4, 4.6.4, 8.2.3.22).
//!
//! A restart by AUTOC, a link reset or a function level reset takes the link down. The link comes up again after a delay on the card's
//! clock. A software reset keeps the link, so drivers prefer it while the link is up. Each change of the link sets LINKS and raises
//! EICR.lsc. No frames pass while the link is down.
//!
//! A 10GBASE-T card (phy.rs) has a PHY in place of a laser, and its link comes and goes with the PHY's power. The PHY negotiates the speed;
//! AUTOC has no effect there, and MACC.force_link_up replaces AUTOC's.
//!
//! AUTOC.force_link_up gives a link without a peer, for tests of the loopback in the MAC (HLREG0.loopback). Pin 3 of ESDP turns the laser
//! off. The peer then reports the loss of light, and its report takes down the card's end of the link, too.

use crate::host::Nanoseconds;
use crate::phy::Speed;
use crate::registers::{field, Register, RegisterFile};

/// Time from a restart to the link being up. Real 10G serial links need some milliseconds, too.
const TRAINING: Nanoseconds = 5_000_000;

pub struct Link {
    /// True if a peer is connected.
    peer: bool,
    /// False if the laser or the PHY is off.
    laser: bool,
    /// The speed that the PHY negotiated; None: the card has an SFP+ module.
    negotiated: Option<Speed>,
    forced: bool,
    up: bool,
    /// True if the link went down since the last read of LINKS.
    lost: bool,
    training_until: Option<Nanoseconds>,
}

impl Link {
    /// `negotiated`: as in the structure.
    pub fn new(peer: bool, negotiated: Option<Speed>) -> Self {
        Self { peer, laser: true, negotiated, forced: false, up: false, lost: false, training_until: None }
    }

    pub fn is_up(&self) -> bool {
        self.up
    }
    /// Returns the speed that the PHY negotiated, while the link is up.
    pub fn negotiated_speed(&self) -> Option<Speed> {
        self.negotiated.filter(|_| self.up)
    }
    pub fn has_peer(&self) -> bool {
        self.peer
    }
    pub fn laser_is_on(&self) -> bool {
        self.laser
    }

    // The following functions return true if the call itself changed the link's state.

    /// Connects or disconnects the peer.
    pub fn set_peer(&mut self, regs: &mut RegisterFile, now: Nanoseconds, peer: bool) -> bool {
        self.peer = peer;
        self.light_changed(regs, now)
    }

    /// Applies the laser's pin of ESDP after a write or a reset of ESDP.
    pub fn set_laser(&mut self, regs: &mut RegisterFile, now: Nanoseconds, on: bool) -> bool {
        if self.laser == on {
            return false;
        }
        self.laser = on;
        self.light_changed(regs, now)
    }

    /// Restarts the negotiation of a PHY that advertises at most `speed`. None: the PHY advertises nothing, or is in low-power mode.
    pub fn negotiate(&mut self, regs: &mut RegisterFile, now: Nanoseconds, speed: Option<Speed>) -> bool {
        let was = self.up;
        self.set_power(regs, now, speed);
        self.restart(regs, now);
        self.up != was
    }

    /// Turns a PHY off (`speed` is None) or on.
    pub fn set_power(&mut self, regs: &mut RegisterFile, now: Nanoseconds, speed: Option<Speed>) -> bool {
        self.negotiated = speed.or(self.negotiated);
        self.set_laser(regs, now, speed.is_some())
    }

    fn light_changed(&mut self, regs: &mut RegisterFile, now: Nanoseconds) -> bool {
        if self.peer && self.laser {
            if !self.up && self.training_until.is_none() {
                self.training_until = Some(now + TRAINING);
            }
            return false;
        }
        self.training_until = None;
        self.change(regs, self.forced)
    }

    /// Applies AUTOC, or MACC of a card with a PHY, after a write or a reset of that register.
    pub fn configure(&mut self, regs: &mut RegisterFile, now: Nanoseconds) -> bool {
        let forced = match self.negotiated {
            None => field::autoc::FORCE_LINK_UP.is_set(regs.get(Register::Autoc)),
            Some(_) => field::macc::FORCE_LINK_UP.is_set(regs.get(Register::Macc)),
        };
        let was = std::mem::replace(&mut self.forced, forced);
        match (was, forced) {
            (false, true) => self.change(regs, true),
            (true, false) if !(self.peer && self.laser) => self.change(regs, false),
            (true, false) if self.training_until.is_some() => self.restart(regs, now),
            _ => false,
        }
    }

    /// Restarts the negotiation.
    pub fn restart(&mut self, regs: &mut RegisterFile, now: Nanoseconds) -> bool {
        let mode = field::autoc::LINK_MODE.get(regs.get(Register::Autoc));
        // In modes that negotiate (backplane), the state is not 0 after a restart. Drivers switch to such a mode to check that the restart
        // has begun.
        let negotiating = mode & 4 != 0;
        regs.set(Register::Anlp1, field::anlp1::AN_STATE.put(if negotiating { 8 } else { 0 }));
        self.training_until = (self.peer && self.laser).then_some(now + TRAINING);
        self.change(regs, self.forced)
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.training_until
    }

    pub fn tick(&mut self, regs: &mut RegisterFile, now: Nanoseconds) -> bool {
        match self.training_until {
            Some(at) if at <= now => {
                self.training_until = None;
                let disabled = field::autoc2::LINK_DISABLE.is_set(regs.get(Register::Autoc2));
                self.change(regs, self.forced || !disabled)
            }
            _ => false,
        }
    }

    fn change(&mut self, regs: &mut RegisterFile, up: bool) -> bool {
        let changed = self.up != up;
        self.lost |= changed && !up;
        self.up = up;
        self.show(regs);
        changed
    }

    /// Writes LINKS and the other registers that show the link's state. MUST also be called after a reset of the registers.
    pub fn show(&self, regs: &mut RegisterFile) {
        use field::links::*;
        let (mut links, mut pcs) = (0, 0);
        if self.up {
            let mode = field::autoc::LINK_MODE.get(regs.get(Register::Autoc));
            let gigabit = self.negotiated.is_none() && (mode == 0 || mode == 2);
            let (speed, between) = self.negotiated.unwrap_or(if gigabit { Speed::G1 } else { Speed::G10 }).in_links();
            links = LINK_UP.ones() | SPEED.put(speed) | SPEED_BETWEEN.put(between);
            links |= KX_SIGNAL.put(1) | MAC_READY.ones() | UP_SINCE_READ.put(u32::from(!self.lost));
            if gigabit {
                pcs = field::pcs1glsta::LINK_OK.ones() | field::pcs1glsta::SYNC_OK.ones() | field::pcs1glsta::AN_COMPLETE.ones();
            }
        }
        regs.set(Register::Links, links);
        regs.set(Register::Pcs1glsta, pcs);
        let status = regs.get(Register::Status) & !field::status::LINK_UP.ones();
        regs.set(Register::Status, status | field::status::LINK_UP.put(u32::from(self.up)));
    }

    /// Returns the value of LINKS. Reading clears the latched link loss.
    pub fn read_links(&mut self, regs: &mut RegisterFile) -> u32 {
        let links = regs.get(Register::Links);
        self.lost = false;
        self.show(regs);
        links
    }
}
