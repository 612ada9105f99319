// SPDX-License-Identifier: BSL-1.0
//! The vfio-user protocol (QEMU's docs/interop/vfio-user.rst, version 0.1): numbers, the header, and a parser for message bodies.

pub const HEADER_BYTES: usize = 16;
/// The largest accepted body: the transfer size that this server offers, and room for the fields before it.
pub const BODY_BYTES_MAX: usize = TRANSFER_BYTES_MAX + 64;
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;
pub const MESSAGE_DESCRIPTORS_MAX: usize = 16;

pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

pub mod flag {
    pub const TYPE: u32 = 0xF;
    pub const REPLY: u32 = 1;
    pub const NO_REPLY: u32 = 1 << 4;
    pub const ERROR: u32 = 1 << 5;

    pub const DMA_READ: u32 = 1;
    pub const DMA_WRITE: u32 = 2;
    pub const DMA_UNMAP_ALL: u32 = 1 << 2;

    pub const DEVICE_RESETS: u32 = 1;
    pub const DEVICE_PCI: u32 = 2;

    pub const REGION_READ: u32 = 1;
    pub const REGION_WRITE: u32 = 2;

    pub const IRQ_EVENTFD: u32 = 1;
    pub const IRQ_MASKABLE: u32 = 2;
    pub const IRQ_AUTOMASKED: u32 = 4;
    pub const IRQ_NORESIZE: u32 = 8;

    pub const SET_DATA_NONE: u32 = 1;
    pub const SET_DATA_BOOL: u32 = 2;
    pub const SET_DATA_EVENTFD: u32 = 4;
    pub const SET_MASK: u32 = 8;
    pub const SET_UNMASK: u32 = 16;
    pub const SET_TRIGGER: u32 = 32;
}

pub mod region {
    pub const BAR0: u32 = 0;
    pub const BAR2: u32 = 2;
    pub const BAR4: u32 = 4;
    pub const CONFIG: u32 = 7;
    pub const COUNT: u32 = 9;
}

pub mod irq {
    pub const INTX: u32 = 0;
    pub const MSI: u32 = 1;
    pub const MSIX: u32 = 2;
    pub const ERROR: u32 = 3;
    pub const REQUEST: u32 = 4;
    pub const COUNT: u32 = 5;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub id: u16,
    pub command: u16,
    /// Length of the whole message.
    pub bytes: usize,
    pub flags: u32,
}

impl Header {
    /// Returns None if there are too few bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut body = Body::new(bytes.get(..HEADER_BYTES)?);
        Some(Self { id: body.u16()?, command: body.u16()?, bytes: body.u32()? as usize, flags: body.u32()? })
    }
    pub fn is_sane(&self) -> bool {
        (HEADER_BYTES..=HEADER_BYTES + BODY_BYTES_MAX).contains(&self.bytes) && self.flags & flag::TYPE == 0
    }
    pub fn wants_reply(&self) -> bool {
        self.flags & flag::NO_REPLY == 0
    }
}

/// Parses a message's body. Its functions return None if the body is too short.
pub struct Body<'b>(&'b [u8]);

impl<'b> Body<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (now, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        now.try_into().ok()
    }
    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    pub fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (now, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(now)
    }
}

/// Appends a reply to a command; `error` is an errno, 0 for none.
pub fn reply(out: &mut Vec<u8>, to: &Header, error: i32, body: &[u8]) {
    let flags = flag::REPLY | if error != 0 { flag::ERROR } else { 0 };
    out.extend(to.id.to_le_bytes());
    out.extend(to.command.to_le_bytes());
    out.extend(((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    out.extend(flags.to_le_bytes());
    out.extend((error as u32).to_le_bytes());
    out.extend(body);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_the_commands_number_and_its_own_length() {
        let command = Header { id: 7, command: command::REGION_READ, bytes: 32, flags: 0 };
        let mut out = Vec::new();
        reply(&mut out, &command, 22, &[1, 2, 3]);
        let parsed = Header::parse(&out).unwrap();
        assert_eq!(parsed, Header { id: 7, command: command::REGION_READ, bytes: 19, flags: flag::REPLY | flag::ERROR });
        assert_eq!(out[12], 22);
        assert!(!parsed.is_sane(), "a reply is no command");
        assert_eq!(Header::parse(&out[..15]), None);
    }

    #[test]
    fn short_bodies_give_none() {
        let mut body = Body::new(&[1, 0, 0]);
        assert_eq!(body.u16(), Some(1));
        assert_eq!(body.u16(), None);
        assert_eq!(Body::new(&[1]).bytes(2), None);
    }
}
