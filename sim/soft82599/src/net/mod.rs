// SPDX-License-Identifier: BSL-1.0
//! The other end of the wire: nothing, a UNIX stream (QEMU's `-netdev stream`, passt), a tap device, the card itself, or a network that
//! the program supplies.
//!
//! Sent frames are collected and leave together at the end of an iteration of the event loop. Each kind of wire buffers a bounded number of
//! bytes. When the buffer is full, the card keeps its frames in the guest's rings.

pub mod batch;
pub mod faults;
pub mod partner;
pub mod pcap;
mod stream;
pub mod supplied;
mod tap;

use crate::sys::Interest;
use batch::Batch;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use stream::Stream;
use supplied::Supplied;
use tap::Tap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Specification {
    None,
    Listen(PathBuf),
    Connect(PathBuf),
    Tap(String),
    Loopback,
}

/// Largest number of bytes that the card has sent to itself and not received yet.
const LOOPBACK_BYTES: usize = 512 * 1024;

pub enum Wire {
    None,
    Stream(Stream),
    Tap(Tap),
    Loopback(Batch),
    /// A modelled network in the same program.
    Supplied(Supplied),
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

    /// True if a peer is connected.
    pub fn is_connected(&self) -> bool {
        match self {
            Self::None => false,
            Self::Stream(stream) => stream.is_connected(),
            Self::Tap(tap) => !tap.is_gone(),
            Self::Loopback(_) | Self::Supplied(_) => true,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stream(_) => "stream",
            Self::Tap(_) => "tap",
            Self::Loopback(_) => "loopback",
            Self::Supplied(_) => "supplied",
        }
    }

    /// True if a MAC at the other end may need the card's pause frames. A tap device passes them to the host's network stack. That stack
    /// and a modelled network do not use pause frames. The peer of a stream may be another card.
    pub fn reaches_a_mac(&self) -> bool {
        !matches!(self, Self::Tap(_) | Self::Supplied(_))
    }

    /// Returns the number of frames from the card that were lost, because there was no peer or the tap device refused them.
    pub fn lost(&self) -> u64 {
        match self {
            Self::None | Self::Loopback(_) | Self::Supplied(_) => 0,
            Self::Stream(stream) => stream.lost,
            Self::Tap(tap) => tap.lost,
        }
    }

    /// Returns the descriptor to wait for. `take`: the caller accepts frames.
    pub fn interest(&self, take: bool) -> Option<Interest> {
        match self {
            Self::None | Self::Loopback(_) | Self::Supplied(_) => None,
            Self::Stream(stream) => stream.interest(take),
            Self::Tap(tap) => tap.interest(take),
        }
    }

    /// Returns the time until the wire has work for which no file descriptor becomes ready. None if there is no such work.
    pub fn due_after(&self, take: bool) -> Option<Duration> {
        // Frames may have arrived before the card requested a pause. For these frames no file descriptor becomes ready again.
        let frames_wait = take && self.input().is_some_and(Batch::has_frame);
        match self {
            _ if frames_wait => Some(Duration::ZERO),
            Self::Stream(stream) => stream.retry_after(),
            _ => None,
        }
    }

    /// Reads received frames, to be fetched with `take_batch`.
    pub fn fill(&mut self) {
        match self {
            Self::None | Self::Loopback(_) | Self::Supplied(_) => {}
            Self::Stream(stream) => stream.fill(),
            Self::Tap(tap) => tap.fill(),
        }
    }

    fn input(&self) -> Option<&Batch> {
        match self {
            Self::None | Self::Supplied(_) => None,
            Self::Stream(stream) => Some(&stream.input),
            Self::Tap(tap) => Some(&tap.input),
            Self::Loopback(batch) => Some(batch),
        }
    }

    fn input_mut(&mut self) -> Option<&mut Batch> {
        match self {
            Self::None | Self::Supplied(_) => None,
            Self::Stream(stream) => Some(&mut stream.input),
            Self::Tap(tap) => Some(&mut tap.input),
            Self::Loopback(batch) => Some(batch),
        }
    }

    /// Takes the received frames out of the wire, so that the card can receive them and send meanwhile.
    pub fn take_batch(&mut self) -> Batch {
        self.input_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Puts back a batch with the frames that the card has not accepted yet.
    pub fn return_batch(&mut self, mut batch: Batch) {
        let loopback = matches!(self, Self::Loopback(_));
        let Some(input) = self.input_mut() else { return };
        if loopback {
            // Frames that arrived since `take_batch` come behind the frames of `batch`.
            batch.append(input.rest());
        }
        *input = batch;
    }

    /// Disconnects the peer of a stream, after an invalid length or if the peer has closed. Stops the use of a removed tap device.
    pub fn disconnect(&mut self) {
        match self {
            Self::Stream(stream) => stream.disconnect(),
            Self::Tap(tap) => tap.disconnect(),
            Self::None | Self::Loopback(_) | Self::Supplied(_) => {}
        }
    }

    pub fn has_room(&self) -> bool {
        match self {
            Self::None => true,
            Self::Stream(stream) => stream.has_room(),
            Self::Tap(tap) => tap.has_room(),
            Self::Loopback(batch) => batch.waiting() < LOOPBACK_BYTES,
            Self::Supplied(supplied) => supplied.has_room(),
        }
    }

    pub fn send(&mut self, parts: &[&[u8]]) {
        match self {
            Self::None => {}
            Self::Stream(stream) => stream.send(parts),
            Self::Tap(tap) => tap.send(parts),
            Self::Loopback(batch) => batch.push(parts),
            Self::Supplied(supplied) => supplied.push(parts),
        }
    }

    /// Sends the collected frames.
    pub fn flush(&mut self) {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Tap(tap) => tap.flush(),
            Self::None | Self::Loopback(_) | Self::Supplied(_) => {}
        }
    }
}
