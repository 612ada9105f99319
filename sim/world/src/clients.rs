// SPDX-License-Identifier: BSL-1.0
//! The clients: hosts with a network stack each, on virtual time.
//!
//! A load needs peers that behave as TCP demands under loss, reordering, closed windows and resets, because the guest under test meets all
//! of these. smoltcp is such a stack; it does nothing by itself, has no threads, and takes the time as an argument. Its times have a
//! microsecond's resolution. That is enough for its timers; frames are handled at the nanosecond at which they arrive.
//!
//! A client's own work takes no time. Its timers differ from those of a Linux client: the retransmission time-out is at least 10 ms (Linux:
//! 200 ms), and a delayed acknowledgement leaves after 5 ms. Segments carry timestamps (RFC 7323), as those of a Linux client do. It sends
//! no selective acknowledgements.
//!
//! A client knows the guest's MAC from the start, as from an earlier exchange. Otherwise a question for the address that comes before the
//! guest is up would cost a second: smoltcp repeats it only then.

use crate::timestamps;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, HardwareAddress, IpAddress, IpCidr,
    IpEndpoint,
};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// The first client's last byte of its address; the others follow. The guest has the same network of 24 bits.
pub const CLIENT_HOST_FIRST: u8 = 16;
pub const CLIENTS_MAX: usize = 200;
const PREFIX_BITS: u8 = 24;
const FRAME_BYTES_MAX: usize = 1514;
const LOCAL_PORT_MIN: u16 = 32_768;
/// Below 8 ms. After that time Linux sends its last segment again (RFC 8985, 7). These clients report no duplicates, so Linux would take
/// the segment for lost and make its congestion window smaller.
const ACKNOWLEDGEMENT_DELAY: Duration = Duration::from_millis(5);
/// Between two polls of a stack that wants to be polled at once, but had nothing to send.
const POLL_INTERVAL_NS: u64 = 100_000;

/// The guest, as the clients know it.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    pub address: Ipv4Addr,
    pub mac: [u8; 6],
}

/// The wire as smoltcp sees it: frames that have arrived, and frames to be sent.
#[derive(Default)]
struct Frames {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sending<'f>(&'f mut VecDeque<Vec<u8>>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, f: F) -> R {
        let mut frame = vec![0; bytes];
        let result = f(&mut frame);
        timestamps::sent(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Frames {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Received(frame), Sending(&mut self.sent)))
    }
    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(&mut self.sent))
    }
    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_BYTES_MAX;
        capabilities
    }
}

/// A host with one interface. It also serves as the guest of tests.
pub struct Host {
    interface: Interface,
    sockets: SocketSet<'static>,
    frames: Frames,
    next_ns: Option<u64>,
    /// `poll` has work at once.
    is_dirty: bool,
    next_port: u16,
    /// Sockets that are no longer in use: each is removed when it is closed.
    retired: Vec<SocketHandle>,
}

fn instant(now_ns: u64) -> Instant {
    Instant::from_micros((now_ns / 1000) as i64)
}

pub fn client_mac(client: usize) -> [u8; 6] {
    // Locally administered. The digits are those of no manufacturer.
    [0x02, 0xC1, 0x1E, 0x27, 0x00, client as u8]
}

pub fn client_address(server: Ipv4Addr, client: usize) -> Ipv4Addr {
    let [a, b, c, _] = server.octets();
    Ipv4Addr::new(a, b, c, CLIENT_HOST_FIRST + client as u8)
}

impl Host {
    pub fn new(mac: [u8; 6], address: Ipv4Addr, seed: u64) -> Self {
        let mut frames = Frames::default();
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(mac)));
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut frames, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The list has room for two addresses.
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv4(address), PREFIX_BITS));
        });
        Self {
            interface,
            sockets: SocketSet::new(Vec::new()),
            frames,
            next_ns: None,
            is_dirty: false,
            next_port: LOCAL_PORT_MIN,
            retired: Vec::new(),
        }
    }

    /// The client with this number, which knows the server.
    pub fn client(client: usize, server: Server, seed: u64) -> Self {
        let (mac, address) = (client_mac(client), client_address(server.address, client));
        let mut host = Self::new(mac, address, seed);
        host.receive(arp_reply(server, mac, address));
        host.poll(0);
        host
    }

    /// A frame has arrived. `poll` handles it.
    pub fn receive(&mut self, mut frame: Vec<u8>) {
        timestamps::arrived(&mut frame);
        self.frames.arrived.push_back(frame);
        self.is_dirty = true;
    }

    /// Handles arrived frames, due timers, and the data that was written to sockets.
    pub fn poll(&mut self, now_ns: u64) {
        let now = instant(now_ns);
        timestamps::set_clock(now_ns);
        self.is_dirty = false;
        self.interface.poll(now, &mut self.frames, &mut self.sockets);
        let Self { sockets, retired, .. } = self;
        retired.retain(|&handle| {
            let closed = sockets.get::<tcp::Socket>(handle).state() == tcp::State::Closed;
            if closed {
                sockets.remove(handle);
            }
            !closed
        });
        self.next_ns = self.interface.poll_at(now, &self.sockets).map(|at| {
            let at_ns = at.total_micros().max(0) as u64 * 1000;
            if at_ns > now_ns {
                at_ns
            } else {
                now_ns + POLL_INTERVAL_NS
            }
        });
    }

    /// The time at which a timer of the stack ends.
    pub fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// True if `poll` has work at this time.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.is_dirty || self.next_ns.is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// The next frame that the host sends.
    pub fn take_frame(&mut self) -> Option<Vec<u8>> {
        self.frames.sent.pop_front()
    }

    fn add_socket(&mut self, receive_bytes: usize, send_bytes: usize) -> SocketHandle {
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let mut socket = tcp::Socket::new(buffer(receive_bytes), buffer(send_bytes));
        socket.set_nagle_enabled(false);
        socket.set_tsval_generator(Some(timestamps::clock_ms));
        socket.set_ack_delay(Some(ACKNOWLEDGEMENT_DELAY));
        socket.set_congestion_control(tcp::CongestionControl::Cubic);
        self.sockets.add(socket)
    }

    /// Begins to connect; the SYN leaves at the next poll. Err: one line that says why not.
    pub fn connect(&mut self, to: (Ipv4Addr, u16), receive_bytes: usize, send_bytes: usize) -> Result<SocketHandle, String> {
        let handle = self.add_socket(receive_bytes, send_bytes);
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(LOCAL_PORT_MIN);
        let remote = IpEndpoint::new(IpAddress::Ipv4(to.0), to.1);
        self.is_dirty = true;
        let result = self.sockets.get_mut::<tcp::Socket>(handle).connect(self.interface.context(), remote, port);
        result.map(|()| handle).map_err(|error| format!("a client cannot connect to {}:{}: {error}", to.0, to.1))
    }

    /// Begins to accept one connection.
    pub fn listen(&mut self, port: u16, receive_bytes: usize, send_bytes: usize) -> Result<SocketHandle, String> {
        let handle = self.add_socket(receive_bytes, send_bytes);
        let result = self.sockets.get_mut::<tcp::Socket>(handle).listen(port);
        result.map(|()| handle).map_err(|error| format!("cannot listen on port {port}: {error}"))
    }

    pub fn state(&self, handle: SocketHandle) -> tcp::State {
        self.sockets.get::<tcp::Socket>(handle).state()
    }

    /// True if the other end may still send, or sent bytes that were not read yet.
    pub fn may_read(&self, handle: SocketHandle) -> bool {
        self.sockets.get::<tcp::Socket>(handle).may_recv()
    }

    /// Appends all bytes that have arrived. Returns their number.
    pub fn read(&mut self, handle: SocketHandle, into: &mut Vec<u8>) -> usize {
        let socket = self.sockets.get_mut::<tcp::Socket>(handle);
        let before = into.len();
        while socket.can_recv() {
            let taken = socket.recv(|bytes| {
                into.extend_from_slice(bytes);
                (bytes.len(), bytes.len())
            });
            if taken.unwrap_or(0) == 0 {
                break;
            }
        }
        // The stack may now announce a larger window.
        self.is_dirty |= into.len() != before;
        into.len() - before
    }

    /// Writes as many bytes as there is room for, and none if the connection is not open. Returns their number.
    pub fn write(&mut self, handle: SocketHandle, bytes: &[u8]) -> usize {
        let written = self.sockets.get_mut::<tcp::Socket>(handle).send_slice(bytes).unwrap_or(0);
        self.is_dirty |= written != 0;
        written
    }

    /// Ends the use of a socket: by FIN, or at once by RST. The handle MUST NOT be used again.
    pub fn retire(&mut self, handle: SocketHandle, at_once: bool) {
        let socket = self.sockets.get_mut::<tcp::Socket>(handle);
        if at_once {
            socket.abort();
        } else {
            socket.close();
        }
        self.retired.push(handle);
        self.is_dirty = true;
    }

    /// True if a socket that is no longer in use waits for the other end. One in TIME-WAIT does not.
    pub fn is_closing(&self) -> bool {
        self.retired.iter().any(|&handle| !matches!(self.state(handle), tcp::State::Closed | tcp::State::TimeWait))
    }

    /// Removes the sockets in TIME-WAIT, so that they cost nothing during the next load. Their last acknowledgements MUST have been sent.
    pub fn forget_closed(&mut self) {
        let Self { sockets, retired, .. } = self;
        retired.retain(|&handle| {
            let waits = sockets.get::<tcp::Socket>(handle).state() == tcp::State::TimeWait;
            if waits {
                sockets.remove(handle);
            }
            !waits
        });
        self.is_dirty = true;
    }

    /// Ends all sockets that are no longer in use by RST, also those that wait for their FIN's acknowledgement.
    pub fn abort_retired(&mut self) {
        for &handle in &self.retired {
            self.sockets.get_mut::<tcp::Socket>(handle).abort();
        }
        self.is_dirty |= !self.retired.is_empty();
    }
}

/// The server's answer to an ARP request.
fn arp_reply(server: Server, mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let arp = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(server.mac),
        source_protocol_addr: server.address,
        target_hardware_addr: EthernetAddress(mac),
        target_protocol_addr: address,
    };
    let ethernet = EthernetRepr { src_addr: EthernetAddress(server.mac), dst_addr: EthernetAddress(mac), ethertype: EthernetProtocol::Arp };
    let mut bytes = vec![0; ethernet.buffer_len() + arp.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes);
    ethernet.emit(&mut frame);
    arp.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Server = Server { address: Ipv4Addr::new(10, 0, 0, 2), mac: [2, 0x82, 0x59, 0x90, 0, 1] };

    /// Moves frames until neither host sends one.
    fn exchange(now_ns: u64, a: &mut Host, b: &mut Host) {
        loop {
            a.poll(now_ns);
            b.poll(now_ns);
            let mut moved = false;
            while let Some(frame) = a.take_frame() {
                b.receive(frame);
                moved = true;
            }
            while let Some(frame) = b.take_frame() {
                a.receive(frame);
                moved = true;
            }
            if !moved {
                break;
            }
        }
    }

    #[test]
    fn a_client_connects_without_asking_for_an_address_and_closes_in_order() {
        let mut client = Host::client(3, SERVER, 1);
        let mut server = Host::new(SERVER.mac, SERVER.address, 2);
        let there = server.listen(11211, 4096, 4096).unwrap();
        let here = client.connect((SERVER.address, 11211), 4096, 4096).unwrap();
        client.poll(1000);
        let syn = client.take_frame().unwrap();
        assert_eq!((&syn[..6], &syn[6..12], &syn[12..14]), (&SERVER.mac[..], &client_mac(3)[..], &[8, 0][..]));
        assert_eq!(syn[26..30], client_address(SERVER.address, 3).octets());
        server.receive(syn);
        exchange(2000, &mut client, &mut server);
        assert_eq!(client.state(here), tcp::State::Established);
        assert_eq!(client.write(here, b"hello"), 5);
        exchange(3000, &mut client, &mut server);
        let mut bytes = Vec::new();
        assert_eq!((server.read(there, &mut bytes), &bytes[..]), (5, &b"hello"[..]));
        client.retire(here, true);
        exchange(4000, &mut client, &mut server);
        assert_eq!(server.state(there), tcp::State::Closed);
        assert!(client.retired.is_empty() && client.next_ns().is_none());
    }

    #[test]
    fn a_lost_segment_is_sent_again_by_the_stacks_own_timer() {
        let mut client = Host::client(0, SERVER, 1);
        let here = client.connect((SERVER.address, 11211), 4096, 4096).unwrap();
        client.poll(5000);
        assert!(client.take_frame().is_some());
        let again_ns = client.next_ns().unwrap();
        assert!(again_ns > 5000 && again_ns < 3_000_000_000, "{again_ns}");
        client.poll(again_ns);
        assert!(client.take_frame().is_some());
        assert_eq!(client.state(here), tcp::State::SynSent);
    }
}
