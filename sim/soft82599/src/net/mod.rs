// SPDX-License-Identifier: BSL-1.0
//! The other end of the wire: nothing, a UNIX stream (QEMU's `-netdev stream`, passt), a tap device, or the card itself.
//!
//! Frames to send are gathered and leave together at the end of a turn of the event loop. Each kind holds a bounded number of bytes; when
//! that is full it has no room, and the card keeps its frames in the guest's rings.

pub mod batch;
pub mod faults;
pub mod partner;
pub mod pcap;
mod stream;
mod tap;

use crate::sys::Interest;
use batch::Batch;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use stream::Stream;
use tap::Tap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Specification {
    None,
    Listen(PathBuf),
    Connect(PathBuf),
    Tap(String),
    Loopback,
}

/// What the card may have sent to itself and not taken yet.
const LOOPBACK_BYTES: usize = 512 * 1024;

pub enum Wire {
    None,
    Stream(Stream),
    Tap(Tap),
    Loopback(Batch),
}

impl Wire {
    pub fn open(specification: &Specification) -> io::Result<Self> {
        Ok(match specification {
            Specification::None => Self::None,
            Specification::Listen(path) => Self::Stream(Stream::listen(path)?),
            Specification::Connect(path) => Self::Stream(Stream::connect(path)?),
            Specification::Tap(name) => Self::Tap(Tap::open(name)?),
            Specification::Loopback => Self::Loopback(Batch::default()),
        })
    }

    /// Is somebody at the other end?
    pub fn is_connected(&self) -> bool {
        match self {
            Self::None => false,
            Self::Stream(stream) => stream.is_connected(),
            Self::Tap(tap) => !tap.is_gone(),
            Self::Loopback(_) => true,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stream(_) => "stream",
            Self::Tap(_) => "tap",
            Self::Loopback(_) => "loopback",
        }
    }

    /// Is there a MAC beyond this, for which the card's pause frames are? A tap device would hand them to the host's network stack, which
    /// knows nothing of them. At a stream's other end there may be another card.
    pub fn reaches_a_mac(&self) -> bool {
        !matches!(self, Self::Tap(_))
    }

    /// Frames from the card that no one took: nobody was there, or the device refused them.
    pub fn lost(&self) -> u64 {
        match self {
            Self::None | Self::Loopback(_) => 0,
            Self::Stream(stream) => stream.lost,
            Self::Tap(tap) => tap.lost,
        }
    }

    /// What to wait for; `take` tells whether frames are wanted.
    pub fn interest(&self, take: bool) -> Option<Interest> {
        match self {
            Self::None | Self::Loopback(_) => None,
            Self::Stream(stream) => stream.interest(take),
            Self::Tap(tap) => tap.interest(take),
        }
    }

    /// When there is something to do though no descriptor will become ready for it.
    pub fn due_after(&self, take: bool) -> Option<Duration> {
        // Frames that came before the card asked for a pause announce themselves no more.
        let frames_wait = take && self.input().is_some_and(Batch::has_frame);
        match self {
            _ if frames_wait => Some(Duration::ZERO),
            Self::Stream(stream) => stream.retry_after(),
            _ => None,
        }
    }

    /// Takes in what has come, to be fetched with `take_batch`.
    pub fn fill(&mut self) {
        match self {
            Self::None | Self::Loopback(_) => {}
            Self::Stream(stream) => stream.fill(),
            Self::Tap(tap) => tap.fill(),
        }
    }

    fn input(&self) -> Option<&Batch> {
        match self {
            Self::None => None,
            Self::Stream(stream) => Some(&stream.input),
            Self::Tap(tap) => Some(&tap.input),
            Self::Loopback(batch) => Some(batch),
        }
    }

    fn input_mut(&mut self) -> Option<&mut Batch> {
        match self {
            Self::None => None,
            Self::Stream(stream) => Some(&mut stream.input),
            Self::Tap(tap) => Some(&mut tap.input),
            Self::Loopback(batch) => Some(batch),
        }
    }

    /// Frames that have come. They leave the wire, so that the card can be given them and send meanwhile.
    pub fn take_batch(&mut self) -> Batch {
        self.input_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns a batch with the frames that were not wanted yet.
    pub fn give_back(&mut self, mut batch: Batch) {
        let loopback = matches!(self, Self::Loopback(_));
        let Some(input) = self.input_mut() else { return };
        if loopback {
            // What was sent meanwhile comes behind what was there.
            batch.append(input.rest());
        }
        *input = batch;
    }

    /// The stream is out of step or its other end gone (only a new connection helps), or the tap device was removed (nothing does).
    pub fn disconnect(&mut self) {
        match self {
            Self::Stream(stream) => stream.disconnect(),
            Self::Tap(tap) => tap.disconnect(),
            Self::None | Self::Loopback(_) => {}
        }
    }

    pub fn has_room(&self) -> bool {
        match self {
            Self::None => true,
            Self::Stream(stream) => stream.has_room(),
            Self::Tap(tap) => tap.has_room(),
            Self::Loopback(batch) => batch.waiting() < LOOPBACK_BYTES,
        }
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        match self {
            Self::None => {}
            Self::Stream(stream) => stream.send(parts),
            Self::Tap(tap) => tap.send(parts),
            Self::Loopback(batch) => batch.push(parts),
        }
    }

    /// Lets gathered frames go.
    pub fn flush(&mut self) {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Tap(tap) => tap.flush(),
            Self::None | Self::Loopback(_) => {}
        }
    }
}
