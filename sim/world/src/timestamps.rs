// SPDX-License-Identifier: BSL-1.0
//! TCP's timestamps (RFC 7323) in the frames of smoltcp.
//!
//! Nearly every client has timestamps, so the cost of a request includes them. smoltcp has the option, but differs from other stacks in two
//! ways. It does not subtract the option from the segment size, so that a full segment would exceed the MTU. And it puts the padding behind
//! the option, while the form of RFC 7323, appendix A, which receivers recognise quickly, has two NOPs in front of it. Here the frames of
//! a host get the usual form, and the segment size in a peer's SYN becomes smaller by the option.

use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, TcpPacket};
use std::cell::Cell;

const OPTION_BYTES: u16 = 12;
const HEADER_BYTES: usize = 20;
const NO_OPERATION: u8 = 1;
const SEGMENT_SIZE: [u8; 2] = [2, 4];
const TIMESTAMPS: [u8; 2] = [8, 10];

thread_local! {
    /// smoltcp reads the clock by a function without arguments.
    static CLOCK_MS: Cell<u32> = const { Cell::new(0) };
}

/// Sets the clock of the segments that hosts send from now on.
pub fn set_clock(now_ns: u64) {
    CLOCK_MS.set((now_ns / 1_000_000) as u32);
}

pub fn clock_ms() -> u32 {
    CLOCK_MS.get()
}

/// Changes the options of a frame with a TCP segment over IPv4. `change` returns false if it has changed nothing.
fn change_options(frame: &mut [u8], change: impl FnOnce(&mut [u8], bool) -> bool) -> Option<()> {
    let mut frame = EthernetFrame::new_checked(frame).ok()?;
    if frame.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let mut packet = Ipv4Packet::new_checked(frame.payload_mut()).ok()?;
    if packet.next_header() != IpProtocol::Tcp || packet.more_frags() || packet.frag_offset() != 0 {
        return None;
    }
    let (from, to) = (IpAddress::Ipv4(packet.src_addr()), IpAddress::Ipv4(packet.dst_addr()));
    let payload = packet.payload_mut();
    let segment = TcpPacket::new_checked(&*payload).ok()?;
    let (end, is_syn) = (usize::from(segment.header_len()), segment.syn());
    if change(&mut payload[HEADER_BYTES..end], is_syn) {
        TcpPacket::new_unchecked(payload).fill_checksum(&from, &to);
    }
    Some(())
}

/// A frame that smoltcp sends. Others are left as they are.
pub fn sent(frame: &mut [u8]) {
    change_options(frame, |options, _| {
        let is_padded_behind = options.len() == usize::from(OPTION_BYTES) && options[..2] == TIMESTAMPS && options[10..] == [0, 0];
        if is_padded_behind {
            options.copy_within(..10, 2);
            options[..2].fill(NO_OPERATION);
        }
        is_padded_behind
    });
}

/// A frame for smoltcp. The segment size of a SYN is that without timestamps (RFC 6691).
pub fn arrived(frame: &mut [u8]) {
    change_options(frame, |options, is_syn| {
        let Some(size) = options.get(2..4).filter(|_| is_syn && options[..2] == SEGMENT_SIZE) else { return false };
        let size = u16::from_be_bytes([size[0], size[1]]).saturating_sub(OPTION_BYTES);
        options[2..4].copy_from_slice(&size.to_be_bytes());
        true
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{EthernetAddress, EthernetRepr, Ipv4Address, Ipv4Repr, TcpControl, TcpRepr, TcpSeqNumber, TcpTimestampRepr};

    const FROM: Ipv4Address = Ipv4Address::new(10, 0, 0, 1);
    const TO: Ipv4Address = Ipv4Address::new(10, 0, 0, 2);

    fn frame(control: TcpControl, max_seg_size: Option<u16>, payload: &[u8]) -> Vec<u8> {
        let segment = TcpRepr {
            src_port: 1000,
            dst_port: 2000,
            control,
            seq_number: TcpSeqNumber(5),
            ack_number: Some(TcpSeqNumber(7)),
            window_len: 100,
            window_scale: None,
            max_seg_size,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: Some(TcpTimestampRepr::new(0x0102_0304, 0x0506_0708)),
            payload,
        };
        let ip = Ipv4Repr { src_addr: FROM, dst_addr: TO, next_header: IpProtocol::Tcp, payload_len: segment.buffer_len(), hop_limit: 64 };
        let ethernet = EthernetRepr {
            src_addr: EthernetAddress([2, 0, 0, 0, 0, 1]),
            dst_addr: EthernetAddress([2, 0, 0, 0, 0, 2]),
            ethertype: EthernetProtocol::Ipv4,
        };
        let mut bytes = vec![0; 14 + ip.buffer_len() + segment.buffer_len()];
        let checksums = ChecksumCapabilities::default();
        let mut frame = EthernetFrame::new_unchecked(&mut bytes);
        ethernet.emit(&mut frame);
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, &checksums);
        segment.emit(&mut TcpPacket::new_unchecked(packet.payload_mut()), &FROM.into(), &TO.into(), &checksums);
        bytes
    }

    fn parsed(bytes: &[u8]) -> (TcpRepr<'_>, &[u8]) {
        let segment = TcpPacket::new_checked(&bytes[34..]).unwrap();
        let options = &bytes[54..34 + usize::from(segment.header_len())];
        let repr = TcpRepr::parse(&segment, &FROM.into(), &TO.into(), &ChecksumCapabilities::default()).expect("the checksum is right");
        (repr, options)
    }

    #[test]
    fn a_sent_segment_has_the_padding_in_front() {
        let mut bytes = frame(TcpControl::Psh, None, b"hello");
        sent(&mut bytes);
        let (segment, options) = parsed(&bytes);
        assert_eq!(options, [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((segment.payload, segment.timestamp.unwrap().tsecr), (&b"hello"[..], 0x0506_0708));
        let before = bytes.clone();
        sent(&mut bytes);
        assert_eq!(bytes, before, "the usual form is left as it is");
    }

    #[test]
    fn the_segment_size_of_a_syn_leaves_room_for_the_option() {
        let mut bytes = frame(TcpControl::Syn, Some(1460), &[]);
        arrived(&mut bytes);
        assert_eq!(parsed(&bytes).0.max_seg_size, Some(1448));
        let mut data = frame(TcpControl::Psh, None, &[2, 4, 5, 0xB4]);
        let before = data.clone();
        arrived(&mut data);
        assert_eq!(data, before);
    }

    #[test]
    fn other_and_short_frames_are_left_as_they_are() {
        for mut bytes in [vec![], vec![0; 14], vec![0xFF; 60], frame(TcpControl::Psh, None, b"x")[..40].to_vec()] {
            let before = bytes.clone();
            sent(&mut bytes);
            arrived(&mut bytes);
            assert_eq!(bytes, before);
        }
    }
}
