// SPDX-License-Identifier: BSL-1.0
//! The link: up when there is a peer and the link is not being restarted (datasheet 3.7.4, 4.6.4, 8.2.3.22).
//!
//! A reset or a restart by AUTOC takes the link down; it comes back after a while on the card's clock. Each change sets LINKS and raises
//! EICR.lsc. Frames pass in neither direction while it is down.

use crate::host::Nanoseconds;
use crate::registers::{field, Register, RegisterFile};

/// From a restart to the link being up; real 10G serial links need some milliseconds, too.
const TRAINING: Nanoseconds = 5_000_000;
const SPEED_10G: u32 = 3;
const SPEED_1G: u32 = 2;

pub struct Link {
    /// There is somebody at the other end.
    peer: bool,
    up: bool,
    training_until: Option<Nanoseconds>,
}

impl Link {
    pub fn new(peer: bool) -> Self {
        Self { peer, up: false, training_until: None }
    }

    pub fn is_up(&self) -> bool {
        self.up
    }
    pub fn has_peer(&self) -> bool {
        self.peer
    }

    /// Somebody plugged or pulled the cable. True if the link's state changed at once (it went down).
    pub fn set_peer(&mut self, regs: &mut RegisterFile, now: Nanoseconds, peer: bool) -> bool {
        self.peer = peer;
        if peer {
            if !self.up && self.training_until.is_none() {
                self.training_until = Some(now + TRAINING);
            }
            return false;
        }
        self.training_until = None;
        self.change(regs, false)
    }

    /// Negotiation starts anew. True if the link was up.
    pub fn restart(&mut self, regs: &mut RegisterFile, now: Nanoseconds) -> bool {
        let mode = field::autoc::LINK_MODE.get(regs.get(Register::Autoc));
        // Negotiating modes (backplane) leave state 0; drivers toggle into one of them to see that the restart has begun.
        let negotiating = mode & 4 != 0;
        regs.set(Register::Anlp1, field::anlp1::AN_STATE.put(if negotiating { 8 } else { 0 }));
        self.training_until = self.peer.then_some(now + TRAINING);
        self.change(regs, false)
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        self.training_until
    }

    /// True if the link came up.
    pub fn tick(&mut self, regs: &mut RegisterFile, now: Nanoseconds) -> bool {
        match self.training_until {
            Some(at) if at <= now => {
                self.training_until = None;
                let disabled = field::autoc2::LINK_DISABLE.is_set(regs.get(Register::Autoc2));
                self.change(regs, self.peer && !disabled)
            }
            _ => false,
        }
    }

    fn change(&mut self, regs: &mut RegisterFile, up: bool) -> bool {
        let changed = self.up != up;
        self.up = up;
        self.show(regs);
        changed
    }

    /// Writes LINKS and what else tells the link's state; also to be called after the registers were reset.
    pub fn show(&self, regs: &mut RegisterFile) {
        use field::links::*;
        let mut links = 0;
        if self.up {
            let mode = field::autoc::LINK_MODE.get(regs.get(Register::Autoc));
            let speed = if mode == 0 || mode == 2 { SPEED_1G } else { SPEED_10G };
            links = LINK_UP.ones() | SPEED.put(speed) | KX_SIGNAL.put(1) | MAC_READY.ones() | bit_7();
        }
        regs.set(Register::Links, links);
        let status = regs.get(Register::Status) & !field::status::LINK_UP.ones();
        regs.set(Register::Status, status | field::status::LINK_UP.put(u32::from(self.up)));
    }
}

/// LINKS bit 7 also tells that the link is up; no driver of ours names it.
const fn bit_7() -> u32 {
    1 << 7
}
