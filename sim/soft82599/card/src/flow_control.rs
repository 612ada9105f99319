// SPDX-License-Identifier: BSL-1.0
//! Pause frames, to and from the peer (datasheet 3.7.7, IEEE 802.3 annex 31B, 802.1Qbb).
//!
//! When the packet buffer of a traffic class fills beyond FCRTH, the card sends XOFF: a pause frame with the pause time from FCTTV. The
//! card repeats XOFF at intervals of FCRTV while the buffer stays full. When the buffer has drained below FCRTL, the card sends XON (time
//! 0), if FCRTL enables that. With priority flow control the frame names the class. The program that delivers frames to the card MUST
//! honour pause frames, like a link partner; frames sent during a pause may be lost.
//!
//! A pause frame from the peer stops all transmit queues, or the queues of the named classes, for the time in the frame. The MAC drops the
//! pause frame itself if MFLCN.discard_pause is set. Other MAC control frames are dropped unless MFLCN is set to pass them on.

use crate::card::Card;
use crate::host::{Host, Nanoseconds};
use crate::mac_control::{self, pause_frame, quanta, MacControl, CLASSES};
use crate::registers::{field, Register, RegisterFile};

pub struct FlowControl {
    /// Bit q: the peer has paused transmit queue q.
    held: u128,
    /// Time at which each class's pause ends. A pause of the whole link pauses all classes.
    held_until: [Nanoseconds; CLASSES],
    refresh_at: [Nanoseconds; CLASSES],
}

impl FlowControl {
    pub fn new() -> Self {
        Self { held: 0, held_until: [0; CLASSES], refresh_at: [Nanoseconds::MAX; CLASSES] }
    }

    /// Returns the transmit queues that must not send now.
    pub fn held_queues(&self) -> u128 {
        self.held
    }

    pub fn next_deadline(&self) -> Option<Nanoseconds> {
        let held = self.held_until.iter().copied().filter(|&at| self.held != 0 && at != 0);
        held.chain(self.refresh_at).min().filter(|&at| at != Nanoseconds::MAX)
    }

    fn hold(&mut self, regs: &RegisterFile, class: usize, until: Nanoseconds) {
        self.held_until[class] = until;
        self.update_held(regs);
    }

    fn update_held(&mut self, regs: &RegisterFile) {
        self.held = (0..CLASSES).filter(|&class| self.held_until[class] != 0).fold(0, |held, class| held | queues_of_class(regs, class));
    }
}

/// Returns the class whose packet buffer the frames of a transmit queue use.
pub(crate) fn class_of_queue(regs: &RegisterFile, queue: usize) -> usize {
    if !field::mtqc::RT_ENABLE.is_set(regs.get(Register::Mtqc)) {
        return 0;
    }
    (0..CLASSES).find(|&class| queues_of_class(regs, class) >> queue & 1 != 0).unwrap_or(0)
}

/// Returns the transmit queues of a class (8.2.3.9.15). Without DCB, all queues belong to class 0.
fn queues_of_class(regs: &RegisterFile, class: usize) -> u128 {
    use field::mtqc::*;
    let mode = regs.get(Register::Mtqc);
    let range = |first: u32, count: u32| ((1u128 << count) - 1) << first;
    match (RT_ENABLE.is_set(mode), VT_ENABLE.is_set(mode), QUEUES.get(mode)) {
        (true, false, 2) => [range(0, 64), range(64, 32), range(96, 16), range(112, 16), 0, 0, 0, 0][class],
        (true, false, _) => {
            let sizes = [32, 32, 16, 16, 8, 8, 8, 8];
            range(sizes[..class].iter().sum(), sizes[class])
        }
        // Each pool has one queue for each class.
        (true, true, kind) => {
            let classes = if kind == 2 { 4 } else { 8 };
            (0..128).filter(|queue| queue % classes == class as u32).fold(0, |set, queue| set | 1 << queue)
        }
        _ if class == 0 => u128::MAX,
        _ => 0,
    }
}

impl Card {
    /// Handles a received MAC control frame. Returns true if the MAC drops the frame.
    pub(crate) fn receive_mac_control(&mut self, now: Nanoseconds, frame: &[u8]) -> bool {
        let Some(said) = mac_control::parse(frame) else { return false };
        use field::mflcn::*;
        let control = self.regs.get(Register::Mflcn);
        match said {
            MacControl::Pause(time) => {
                if LINK_ENABLE.is_set(control) {
                    let counters =
                        if time != 0 { [Register::Lxoffrxcnt, Register::Lxoffrxc] } else { [Register::Lxonrxcnt, Register::Lxonrxc] };
                    counters.into_iter().for_each(|counter| self.regs.count(counter, 0, 1));
                    for class in 0..CLASSES {
                        self.hold_class(now, class, time);
                    }
                }
                DISCARD_PAUSE.is_set(control)
            }
            MacControl::PriorityPause(named, times) => {
                if PRIORITY_ENABLE.is_set(control) {
                    let named = u32::from(named) & PRIORITY_CLASSES.get(control);
                    for class in (0..CLASSES).filter(|class| named >> class & 1 != 0) {
                        let time = times[class];
                        let counters =
                            if time != 0 { [Register::Pxoffrxcnt, Register::Pxoffrxc] } else { [Register::Pxonrxcnt, Register::Pxonrxc] };
                        counters.into_iter().for_each(|counter| self.regs.count(counter, class, 1));
                        self.hold_class(now, class, time);
                    }
                }
                DISCARD_PAUSE.is_set(control)
            }
            MacControl::Other => !PASS_MAC_CONTROL.is_set(control),
        }
    }

    fn hold_class(&mut self, now: Nanoseconds, class: usize, time: u16) {
        // XON ends a pause. The queues continue at the next call of `Card::tick`, which is due at once.
        if time != 0 || self.flow_control.held_until[class] != 0 {
            self.flow_control.hold(&self.regs, class, (now + quanta(time.into())).max(1));
        }
    }

    /// Compares the fill level of a class's packet buffer with the watermarks. Sends XOFF or XON if the level has crossed one of them.
    pub(crate) fn update_pause(&mut self, host: &mut impl Host, now: Nanoseconds, class: usize) {
        let (high, low) = (self.regs.get_at(Register::Fcrth, class), self.regs.get_at(Register::Fcrtl, class));
        let config = self.regs.get(Register::Fccfg);
        let sends = field::fccfg::TFCE_LINK.is_set(config) || field::fccfg::TFCE_PRIORITY.is_set(config);
        let mark = if sends && field::fcrth::ENABLE.is_set(high) { field::fcrth::THRESHOLD_16.get(high) as usize * 16 } else { 0 };
        match self.packet_buffer.update_pause(class, mark, field::fcrtl::THRESHOLD_16.get(low) as usize * 16) {
            Some(true) => self.send_pause(host, now, class, true),
            Some(false) if field::fcrtl::XON_ENABLE.is_set(low) => self.send_pause(host, now, class, false),
            Some(false) => self.flow_control.refresh_at[class] = Nanoseconds::MAX,
            None => {}
        }
    }

    fn send_pause(&mut self, host: &mut impl Host, now: Nanoseconds, class: usize, off: bool) {
        let times = self.regs.get_at(Register::Fcttv, class / 2);
        let time = if class % 2 == 0 { field::fcttv::EVEN.get(times) } else { field::fcttv::ODD.get(times) };
        let time = if off { time as u16 } else { 0 };
        let refresh = field::fcrtv::REFRESH.get(self.regs.get(Register::Fcrtv));
        self.flow_control.refresh_at[class] = if off && refresh != 0 { now + quanta(refresh) } else { Nanoseconds::MAX };
        let priority = field::fccfg::TFCE_PRIORITY.is_set(self.regs.get(Register::Fccfg));
        let (counter, index) = match (priority, off) {
            (false, true) => (Register::Lxofftxc, 0),
            (false, false) => (Register::Lxontxc, 0),
            (true, true) => (Register::Pxofftxc, class),
            (true, false) => (Register::Pxontxc, class),
        };
        if host.wire_has_room() && self.link.is_up() {
            self.regs.count(counter, index, 1);
            let frame = pause_frame(self.mac, priority.then_some(class), time);
            self.statistics.pause_sent(&mut self.regs, std::array::from_fn(|byte| frame[byte]));
            host.send(&[&frame]);
        }
    }

    /// Ends pauses that have expired and repeats XOFF frames that are due.
    pub(crate) fn tick_flow_control(&mut self, host: &mut impl Host, now: Nanoseconds) {
        let mut ended = false;
        for class in 0..CLASSES {
            if (1..=now).contains(&self.flow_control.held_until[class]) {
                self.flow_control.held_until[class] = 0;
                ended = true;
            }
            if self.flow_control.refresh_at[class] <= now {
                if self.packet_buffer.class_is_paused(class) {
                    self.send_pause(host, now, class, true);
                } else {
                    self.flow_control.refresh_at[class] = Nanoseconds::MAX;
                }
            }
        }
        if ended {
            self.flow_control.update_held(&self.regs);
            self.transmit(host, now);
        }
    }
}
