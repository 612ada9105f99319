// SPDX-License-Identifier: BSL-1.0
//! Tests of the program: its bus, its wire, its control socket, and its exit.

mod common;
mod conventions;
mod driver;
mod on_demand;

use common::{program, Client, Event, Memory, Server, BAR0, CONFIG, MSIX, TIME_OUT};
use driver::*;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

#[test]
fn frames_pass_between_a_guest_and_a_peer() {
    let server = Server::start("frames", "--net listen:DIR/net.sock");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    let mut event = bring_up(&mut client, &memory);
    assert_eq!(client.register(LINKS) >> 30 & 1, 0, "no peer, no link");
    let mut peer = server.join_net();
    wait_for_link(&mut client, true);
    for number in 0..20u8 {
        transmit(&mut client, &memory, u64::from(number) % 8, &frame(number));
        assert_eq!(read_frame(&mut peer), frame(number));
        assert!(event.fired(TIME_OUT), "transmit {number}");
        assert_eq!(memory.u64_at(TRANSMIT_RING + u64::from(number) % 8 * 16 + 8) >> 32 & 1, 1, "done");

        let slot = u64::from(number) % 8;
        memory.write(RECEIVE_RING + slot * 16, &(RECEIVE_BUFFER + slot * 2048).to_le_bytes());
        memory.write(RECEIVE_RING + slot * 16 + 8, &[0; 8]);
        client.set_register(RDT, (u32::from(number) + 7) % 8);
        client.register(STATUS); // this read returns after the earlier posted writes have arrived
        write_frame(&mut peer, &frame(number));
        assert!(event.fired(TIME_OUT), "receive {number}");
        let status = memory.u64_at(RECEIVE_RING + slot * 16 + 8);
        assert_eq!((status & 3, (status >> 32) as u16), (3, frame(number).len() as u16));
        assert_eq!(memory.read(RECEIVE_BUFFER + slot * 2048, frame(number).len()), frame(number));
    }
    drop(peer);
    wait_for_link(&mut client, false);
    let mut peer = server.join_net();
    peer.write_all(&[0xFF; 100]).unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0, "a peer out of step is disconnected");
}

/// A guest whose card is connected to another card.
struct Guest {
    client: Client,
    memory: Memory,
    sent: u64,
    received: u64,
    _event: Event,
}

impl Guest {
    fn on(server: &Server) -> Self {
        let mut client = server.connect();
        let memory = Memory::new(MEMORY);
        let event = bring_up(&mut client, &memory);
        Self { client, memory, sent: 0, received: 0, _event: event }
    }
    fn send(&mut self, frame: &[u8]) {
        transmit(&mut self.client, &self.memory, self.sent % 8, frame);
        self.sent += 1;
    }
    fn receive(&mut self, bytes: usize) -> Vec<u8> {
        let slot = self.received % 8;
        let descriptor = RECEIVE_RING + slot * 16;
        let until = std::time::Instant::now() + TIME_OUT;
        while self.memory.u64_at(descriptor + 8) & 3 != 3 {
            assert!(std::time::Instant::now() < until, "nothing came");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.memory.u64_at(descriptor + 8) >> 32 & 0xFFFF, bytes as u64);
        let frame = self.memory.read(RECEIVE_BUFFER + slot * 2048, bytes);
        self.memory.write(descriptor, &(RECEIVE_BUFFER + slot * 2048).to_le_bytes());
        self.memory.write(descriptor + 8, &[0; 8]);
        self.client.set_register(RDT, slot as u32);
        self.received += 1;
        frame
    }
}

fn exchange(a: &mut Guest, b: &mut Guest) {
    wait_for_link(&mut a.client, true);
    wait_for_link(&mut b.client, true);
    for number in 0..20 {
        a.send(&frame(number));
        assert_eq!(b.receive(frame(number).len()), frame(number));
        b.send(&frame(number + 20));
        assert_eq!(a.receive(frame(number + 20).len()), frame(number + 20));
    }
}

#[test]
fn two_connected_cards_survive_a_restart_of_either() {
    let mut listens = Server::start("joined-listens", "--net listen:DIR/net.sock");
    let connect = format!("--net connect:{}", listens.path("net.sock").display());
    let mut connects = Server::start("joined-connects", &connect);
    let (mut a, mut b) = (Guest::on(&listens), Guest::on(&connects));
    exchange(&mut a, &mut b);

    connects.child.kill().unwrap();
    connects.wait();
    wait_for_link(&mut a.client, false);
    let again = Server::start_in(connects.directory.clone(), &connect);
    b = Guest::on(&again);
    exchange(&mut a, &mut b);

    listens.child.kill().unwrap();
    listens.wait();
    wait_for_link(&mut b.client, false);
    let listens_again = Server::start_in(listens.directory.clone(), "--net listen:DIR/net.sock");
    a = Guest::on(&listens_again);
    exchange(&mut a, &mut b);

    // The servers stay connected to each other when a guest disconnects.
    drop(b);
    b = Guest::on(&again);
    exchange(&mut a, &mut b);
}

#[test]
fn the_interrupt_trace_is_bounded_and_has_the_cards_times() {
    let server = Server::start("trace", "--time-scale 0.001");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    let mut event = bring_up(&mut client, &memory);
    let itr = |us: u32| us / 2 << 3 | 1 << 31;
    assert_eq!(server.control("trace start 5"), "{\"ok\": true}\n");
    // The card's clock is slowed: its 500 us take half a second of real time. So the second message certainly waits. The third message is
    // sent after a pause.
    client.set_register(EITR, itr(500));
    client.set_register(EICS, 1);
    client.set_register(EICS, 1);
    assert!(event.fired(TIME_OUT));
    assert!(event.fired(TIME_OUT));
    client.set_register(EITR, itr(8));
    std::thread::sleep(Duration::from_millis(600));
    for _ in 0..3 {
        client.set_register(EICS, 1);
        assert!(event.fired(TIME_OUT));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.control("trace stop"), "{\"ok\": true}\n");
    let answer = server.control("trace read");
    assert!(answer.starts_with("{\"on\": false, \"lost\": 2, \"left\": 0, \"now\": "), "{answer}");
    let numbers = |name: &str| -> Vec<u64> {
        let name = format!("\"{name}\": ");
        let parts = answer.split(&name).skip(1);
        parts.map(|part| part.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()).collect()
    };
    assert_eq!((numbers("interval"), numbers("software")), (vec![500_000, 8_000], vec![1, 1, 1]));
    let (at, held) = (numbers("at"), numbers("held"));
    assert!(at[2] - at[1] >= 500_000 && held[0] == 0 && held[1] > 0 && held[2] == 0, "{answer}");
    for wrong in ["trace start 0", "trace start 5000000", "trace start x", "trace", "trace write"] {
        assert!(server.control(wrong).starts_with("{\"error\""), "{wrong}");
    }
    assert_eq!(server.control("trace read").matches("\"at\"").count(), 0, "what was read is gone");
}

#[test]
fn loopback_returns_a_guests_own_frames() {
    let server = Server::start("loopback", "--net loopback");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    let mut event = bring_up(&mut client, &memory);
    wait_for_link(&mut client, true);
    transmit(&mut client, &memory, 0, &frame(5));
    assert!(event.fired(TIME_OUT));
    client.register(STATUS);
    let until = std::time::Instant::now() + TIME_OUT;
    while memory.u64_at(RECEIVE_RING + 8) & 1 == 0 {
        assert!(std::time::Instant::now() < until, "nothing came back");
    }
    assert_eq!(memory.read(RECEIVE_BUFFER, 65), frame(5));
}

#[test]
fn control_counts_accesses_and_sets_the_link() {
    let server = Server::start("control", "--net loopback");
    let mut client = server.connect();
    wait_for_link(&mut client, true);
    assert_eq!(server.control("reset-counters"), "{\"ok\": true}\n");
    client.register(STATUS);
    client.register(STATUS);
    client.set_register(0x1018 + 3 * 0x40, 0);
    client.register(CTRL);
    assert_eq!(server.control("counters"), "{\"reads\": {\"CTRL\": 1, \"STATUS\": 2}, \"writes\": {\"RDT[3]\": 1}}\n");
    assert!(server.control("statistics").starts_with('{'));
    let state = server.control("state");
    assert!(state.contains("link up") && state.ends_with("\n.\n"), "{state}");
    server.control("link down");
    wait_for_link(&mut client, false);
    server.control("link up");
    wait_for_link(&mut client, true);
    assert!(server.control("dance").starts_with("{\"error\": \"unknown command"));
    assert!(server.control(&"x".repeat(3000)).starts_with("{\"error\""));
}

#[test]
fn each_guest_gets_a_fresh_card() {
    let server = Server::start("guests", "");
    for _ in 0..3 {
        let mut client = server.connect();
        let memory = Memory::new(MEMORY);
        bring_up(&mut client, &memory);
        client.set_register(0x5400, 0x1234_5678);
        assert_eq!(client.register(0xA200), 0x1234_5678);
        drop(client);
        let mut client = server.connect();
        assert_eq!(client.register(0x5400).to_le_bytes(), [0x02, 0x82, 0x59, 0x90]);
        assert_eq!(client.register(RXCTRL), 0);
        assert_eq!(client.read(CONFIG, 4, 2).unwrap(), [0, 0], "bus mastering is off");
    }
}

#[test]
fn invalid_commands_are_refused_and_the_guest_stays_connected() {
    let server = Server::start("nonsense", "--log-level error");
    let mut client = server.connect();
    let memory = Memory::new(0x1000);
    assert_eq!(client.map(0, 0x2000, &memory, 0), Err(libc::EINVAL), "beyond the file");
    assert_eq!(client.map(0, 0, &memory, 0), Err(libc::EINVAL));
    client.map(0, 0x1000, &memory, 0).unwrap();
    assert_eq!(client.map(0x800, 0x1000, &memory, 0), Err(libc::EINVAL), "overlap");
    assert_eq!(client.unmap(0, 0x800), Err(libc::EINVAL), "cut");
    client.unmap(0, 0x1000).unwrap();
    assert_eq!(client.read(BAR0, 0x1FFFE, 4), Err(libc::EINVAL));
    assert_eq!(client.read(3, 0, 4), Err(libc::EINVAL));
    assert_eq!(client.read(BAR0, u64::MAX, 4), Err(libc::EINVAL));
    assert_eq!(client.read(BAR0, 0, u32::MAX), Err(libc::EINVAL));
    assert_eq!(client.write(77, 0, &[0; 4]), Err(libc::EINVAL));
    assert_eq!(client.call(8, &[0; 4], &[]), Err(libc::EINVAL), "too short");
    assert_eq!(client.call(4711, &[], &[]), Err(libc::ENOTSUP));
    let event = Event::new();
    let words = [20u32, 32 | 4, MSIX, 64, 1];
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(client.call(8, &body, &[event.raw()]), Err(libc::EINVAL), "there are 64 vectors");
    assert_eq!(client.register(STATUS) >> 19 & 1, 1);
    // After bytes that are not vfio-user, the connection ends and the server continues.
    client.stream.write_all(&[0xFF; 64]).unwrap();
    assert_eq!(client.stream.read(&mut [0; 1]).unwrap_or(0), 0);
    server.connect().register(STATUS);
}

#[test]
fn messages_may_arrive_in_any_pieces() {
    let server = Server::start("pieces", "");
    let mut client = server.connect();
    let read = |client: &mut Client, offset: u64| {
        let mut body = Vec::new();
        body.extend(offset.to_le_bytes());
        body.extend(BAR0.to_le_bytes());
        body.extend(4u32.to_le_bytes());
        client.message(9, 0, &body)
    };
    // Sends one message byte by byte, then two messages in one write, then a map command with its descriptor, and one more message.
    for byte in read(&mut client, STATUS) {
        client.stream.write_all(&[byte]).unwrap();
    }
    client.answer().unwrap();
    let memory = Memory::new(0x1000);
    let before = [read(&mut client, STATUS), read(&mut client, LINKS)].concat();
    client.stream.write_all(&before).unwrap();
    let mut body = Vec::new();
    body.extend([32u32, 3].iter().flat_map(|word| word.to_le_bytes()));
    body.extend([0u64, 0x7000, 0x1000].iter().flat_map(|value| value.to_le_bytes()));
    let map = client.message(2, 0, &body);
    common::send_with_descriptors(&client.stream, &map, &[memory.file.as_raw_fd()]);
    let after = read(&mut client, CTRL);
    client.stream.write_all(&after).unwrap();
    for _ in 0..4 {
        client.answer().unwrap();
    }
    client.unmap(0x7000, 0x1000).unwrap();
}

#[test]
fn a_function_level_reset_works_by_configuration_space_and_by_command() {
    let server = Server::start("flr", "");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    bring_up(&mut client, &memory);
    client.write(CONFIG, 0xA8, &[0x10, 0xA8]).unwrap();
    assert_eq!(client.register(RXCTRL), 0);
    assert_eq!(client.read(CONFIG, 0, 4).unwrap(), [0x86, 0x80, 0xFB, 0x10]);
    client.set_register(RXCTRL, 1);
    client.call(13, &[], &[]).unwrap();
    assert_eq!(client.register(RXCTRL), 0, "and by the device reset command");
}

#[test]
fn the_program_ends_with_once_and_quit() {
    let mut server = Server::start("once", "--once");
    drop(server.connect());
    assert_eq!(server.wait(), 0);
    assert!(!server.path("card.sock").exists(), "no socket is left behind");

    let mut server = Server::start("quit", "");
    server.control("quit");
    assert_eq!(server.wait(), 0);
}

#[test]
fn leftovers_of_a_killed_program_are_replaced_and_a_running_one_is_not() {
    let mut first = Server::start("stale", "");
    first.child.kill().unwrap();
    first.wait();
    assert!(first.path("card.sock").exists(), "killed, it could not clean up");
    let second = Server::start_in(first.directory.clone(), "");
    let socket = second.path("card.sock");
    let output = program(&format!("--socket-path={}", socket.display())).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.starts_with("soft82599: error: ") && message.contains("card.sock") && message.lines().count() == 1, "{message}");
    second.connect().register(STATUS);
}

#[test]
fn wrong_arguments_end_with_status_two_and_one_line() {
    for arguments in ["", "--socket-path", "--socket-path=/tmp/x --net pigeon", "--socket-path=/tmp/x --mac 1", "--frobnicate"] {
        let output = program(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.starts_with("soft82599: ") && message.lines().count() == 1, "{arguments}: {message}");
    }
    let output = program("--socket-path=/nonexistent/directory/x").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(program("--help").output().unwrap().status.code(), Some(0));
}
