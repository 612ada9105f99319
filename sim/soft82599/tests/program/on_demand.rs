// SPDX-License-Identifier: BSL-1.0
//! Faults on demand, a stepped clock, recordings, and `--strict`.

use crate::common::{program, Client, Event, Memory, Server, CONFIG, TIME_OUT};
use crate::driver::*;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

const OK: &str = "{\"ok\": true}\n";

struct Guest {
    client: Client,
    memory: Memory,
    event: Event,
    peer: UnixStream,
    next: u64,
}

impl Guest {
    /// Returns a guest with a peer on the server's stream and the link up.
    fn new(server: &Server) -> Self {
        let mut client = server.connect();
        let memory = Memory::new(MEMORY);
        let event = bring_up(&mut client, &memory);
        let peer = server.join_net();
        wait_for_link(&mut client, true);
        Self { client, memory, event, peer, next: 0 }
    }

    /// Sends frames with these numbers to the guest. Returns the numbers of the frames that arrive, up to frame `last`.
    fn receive(&mut self, numbers: &[u8], last: u8) -> Vec<u8> {
        for &number in numbers {
            write_frame(&mut self.peer, &frame(number));
        }
        let mut got = Vec::new();
        while got.last() != Some(&last) {
            let slot = self.next % 8;
            let until = std::time::Instant::now() + TIME_OUT;
            while self.memory.u64_at(RECEIVE_RING + slot * 16 + 8) & 1 == 0 {
                assert!(std::time::Instant::now() < until, "only {got:?} of {numbers:?} came");
                std::thread::sleep(Duration::from_millis(1));
            }
            got.push(self.memory.read(RECEIVE_BUFFER + slot * 2048 + 20, 1)[0]);
            self.memory.write(RECEIVE_RING + slot * 16, &(RECEIVE_BUFFER + slot * 2048).to_le_bytes());
            self.memory.write(RECEIVE_RING + slot * 16 + 8, &[0; 8]);
            self.client.set_register(RDT, slot as u32);
            self.next += 1;
        }
        got
    }
}

#[test]
fn frames_are_lost_reordered_and_corrupted_as_requested_and_counted() {
    let server = Server::start("faults", "--net listen:DIR/net.sock");
    let mut guest = Guest::new(&server);
    assert_eq!(server.control("fault drop rx next 2"), OK);
    assert_eq!(guest.receive(&[1, 2, 3], 3), [3]);
    assert_eq!(server.control("fault reorder rx next 1"), OK);
    assert_eq!(guest.receive(&[4, 5], 4), [5, 4]);
    // Frame 6 is delayed by 200 ms of the card's clock, so frame 7 overtakes it.
    assert_eq!(server.control("fault delay rx 200000000 next 1"), OK);
    assert_eq!(guest.receive(&[6, 7], 6), [7, 6]);
    assert_eq!(server.control("fault corrupt tx next 1"), OK);
    transmit(&mut guest.client, &guest.memory, 0, &frame(9));
    let corrupted = read_frame(&mut guest.peer);
    let wrong: u32 = corrupted.iter().zip(frame(9)).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!((corrupted.len(), wrong), (69, 1));
    let statistics = server.control("statistics");
    for counted in ["\"fault.rx_dropped\": 2", "\"fault.rx_reordered\": 1", "\"fault.rx_delayed\": 1", "\"fault.tx_corrupted\": 1"] {
        assert!(statistics.contains(counted), "{counted} in {statistics}");
    }
    server.control("fault drop both chance 1");
    assert!(server.control("faults").contains("\"rx\": \"drop chance 1 "));
    server.control("fault off");
    assert_eq!(guest.receive(&[8], 8), [8]);
    for nonsense in ["fault", "fault drop", "fault melt", "fault \"drop\" rx \\ next 1"] {
        let answer = server.control(nonsense);
        assert!(answer.starts_with("{\"error\": \"fault") && answer.matches('"').count() % 2 == 0, "{answer}");
    }
}

#[test]
fn ending_the_fault_releases_a_hung_queue_and_restores_interrupts() {
    let server = Server::start("hang", "--net listen:DIR/net.sock");
    let mut guest = Guest::new(&server);
    server.control("fault hang tx 0");
    transmit(&mut guest.client, &guest.memory, 0, &frame(1));
    assert_eq!(guest.client.register(TXDCTL - 0x18), 0, "the head stands still");
    server.control("fault free tx 0");
    assert_eq!(read_frame(&mut guest.peer), frame(1));
    assert!(guest.event.fired(TIME_OUT));
    server.control("fault lose 0 next 1");
    transmit(&mut guest.client, &guest.memory, 1, &frame(2));
    assert_eq!(read_frame(&mut guest.peer), frame(2));
    guest.client.register(STATUS);
    assert!(!guest.event.fired(Duration::ZERO));
    transmit(&mut guest.client, &guest.memory, 2, &frame(3));
    assert!(guest.event.fired(TIME_OUT));
}

#[test]
fn a_removed_card_reads_as_ones_and_returns_fresh() {
    let server = Server::start("away", "--net listen:DIR/net.sock --fault away");
    let mut client = server.connect();
    assert_eq!(client.register(STATUS), u32::MAX);
    assert_eq!(client.read(CONFIG, 0, 4).unwrap(), [0xFF; 4]);
    assert_eq!(server.control("fault back"), OK);
    assert_eq!(client.read(CONFIG, 0, 4).unwrap(), [0x86, 0x80, 0xFB, 0x10]);
    let request = Event::new();
    client.set_eventfd(4, 0, &request);
    server.control("fault unplug");
    let mut request = request;
    assert!(request.fired(TIME_OUT), "the client is asked to unplug the device");
}

#[test]
fn the_link_flaps_as_often_as_requested_on_a_stepped_clock() {
    let server = Server::start("flap", "--net loopback --stopped");
    let mut client = server.connect();
    assert!(server.control("clock step 10000000").contains("\"now\": 10000000, \"stopped\": true"));
    assert_eq!(client.register(LINKS) >> 30 & 1, 1);
    server.control("link flap 20000000 2");
    let mut seen = Vec::new();
    for _ in 0..8 {
        seen.push(client.register(LINKS) >> 30 & 1);
        server.control("clock step 10000000");
    }
    // The link's state every 10 ms: down, up after training, down again, then up permanently.
    assert_eq!(seen, [0, 0, 0, 1, 0, 0, 0, 1]);
    for nonsense in ["link", "link flap", "link flap 5", "link flap 5000 0", "clock step", "clock step 0", "clock run 0", "clock back"] {
        assert!(server.control(nonsense).starts_with("{\"error\""), "{nonsense}");
    }
    assert!(server.control("clock run").contains("\"stopped\": false"));
    assert!(server.control("clock step 5").contains("clock stop comes first"));
}

#[test]
fn on_a_stepped_clock_moderation_waits_for_the_step() {
    let server = Server::start("stepped", "--net listen:DIR/net.sock --stopped");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    let mut event = bring_up(&mut client, &memory);
    client.set_register(EITR, 50 << 3); // 100 us
    let mut peer = server.join_net();
    server.control("clock step 10000000");
    for index in 0..2 {
        transmit(&mut client, &memory, index, &frame(1));
        read_frame(&mut peer);
    }
    assert!(event.fired(TIME_OUT), "the first goes at once");
    server.control("clock step 99999");
    assert!(!event.fired(Duration::ZERO), "the second one is held back");
    server.control("clock step 1");
    assert!(event.fired(TIME_OUT));
}

#[test]
fn a_recording_is_bounded_and_readable_by_tcpdump() {
    let server = Server::start("pcap", "--net listen:DIR/net.sock --stopped --pcap DIR/card.pcap --pcap-limit 300");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    bring_up(&mut client, &memory);
    let mut peer = server.join_net();
    server.control("clock step 10000000");
    transmit(&mut client, &memory, 0, &frame(1));
    read_frame(&mut peer);
    server.control("clock step 1234");
    write_frame(&mut peer, &frame(2));
    let until = std::time::Instant::now() + TIME_OUT;
    while memory.u64_at(RECEIVE_RING + 8) & 1 == 0 {
        assert!(std::time::Instant::now() < until, "nothing came");
    }
    // The third frame does not fit into 300 bytes. The fourth frame is short enough, but is not recorded either: in the file it would
    // directly follow the second frame.
    for (index, number) in [(1, 90), (2, 0)] {
        transmit(&mut client, &memory, index, &frame(number));
        read_frame(&mut peer);
    }
    let file = server.path("card.pcap");
    let mut tcpdump = Command::new("tcpdump");
    tcpdump.args(["--time-stamp-precision=nano", "-tt", "-e", "-n", "-xx", "-r"]).arg(&file).stdin(Stdio::null());
    let output = tcpdump.output().expect("tcpdump is there (Debian's package tcpdump)");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let frames: Vec<&str> = text.lines().filter(|line| !line.starts_with('\t')).collect();
    assert!(frames.len() == 2 && frames[0].contains("length 61") && frames[1].contains("length 62"), "{text}");
    let at = |line: &str| {
        line.split_once(' ').unwrap().0.split_once('.').map(|(s, n)| s.parse::<u64>().unwrap() * 1_000_000_000 + n.parse::<u64>().unwrap())
    };
    assert_eq!(at(frames[1]).unwrap() - at(frames[0]).unwrap(), 1234);
    assert!(text.contains("0202 0202"), "the second frame's bytes");
    assert!(std::fs::metadata(&file).unwrap().len() <= 300);
    let statistics = server.control("statistics");
    assert!(statistics.contains("\"pcap.frames\": 2") && statistics.contains("\"pcap.missed\": "), "{statistics}");
}

#[test]
fn strict_names_the_rule_and_ends_with_status_three() {
    let run = |arguments: &str, wrong: bool| {
        let directory = std::env::temp_dir().join(format!("soft82599-strict-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("card.sock");
        let mut child = program(&format!("--socket-path={} --once {arguments}", socket.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let mut client = Client::connect(&socket);
        if wrong {
            client.set_register(TDT, 5);
        } else {
            client.register(STATUS);
        }
        drop(client);
        let output = child.wait_with_output().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = run("--strict", true);
    assert!(
        status == 3 && said.contains("TDT[0] = 5") && said.contains("rule: a tail moves only after") && said.contains("(4.6."),
        "{said}"
    );
    assert!(said.ends_with("soft82599: strict: 1 violations: tail_of_disabled_queue 1\n"), "{said}");
    assert_eq!(run("--strict", false), (0, "soft82599: strict: 0 violations\n".into()));
    assert_eq!(run("--log-level error", true), (0, String::new()));
    assert_eq!(run("--strict=stop --log-level error", true).0, 3);
}

#[test]
fn the_wire_holds_its_frames_while_the_card_requests_a_pause() {
    let server = Server::start("pause", "--net listen:DIR/net.sock --stopped");
    let mut client = server.connect();
    let memory = Memory::new(MEMORY);
    bring_up(&mut client, &memory);
    let mut peer = server.join_net();
    server.control("clock step 10000000");
    wait_for_link(&mut client, true);
    // The card requests a pause of 100 quanta (5.12 us) when its buffer has 8 KiB or more, and does not repeat the request.
    let pause_bytes = 8192;
    client.set_register(FCTTV, 100);
    client.set_register(FCRTH, 1 << 31 | pause_bytes);
    client.set_register(FCCFG, 1 << 3);
    client.register(STATUS);
    let number = |name: &str| -> usize {
        let statistics = server.control("statistics");
        let value = statistics.split_once(&format!("\"{name}\": ")).map_or("0", |(_, rest)| rest);
        value.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let mut sent = 0;
    let mut send = |peer: &mut UnixStream, count: usize| {
        (0..count).for_each(|_| write_frame(peer, &[7; 1000]));
        sent += count;
        sent
    };
    send(&mut peer, 40);
    let pause = read_frame(&mut peer);
    assert_eq!((pause.len(), &pause[12..18]), (60, &[0x88, 0x08, 0, 1, 0, 100][..]));
    assert_eq!(number("wire.pauses"), 1);
    let taken = number("GPRC");
    assert!(taken < 24, "{taken} frames of 1000 bytes, eight of them in buffers of the ring, are more than {pause_bytes} bytes");
    server.control("clock step 5119");
    assert_eq!(number("GPRC"), taken);
    // The pause time has ended, and the card has sent no new pause frame. So all frames are delivered, even if the card has no room for
    // them.
    server.control("clock step 1");
    let until = std::time::Instant::now() + TIME_OUT;
    let all = send(&mut peer, 0);
    while number("GPRC") + number("RXMPC[0]") < all {
        assert!(std::time::Instant::now() < until, "{}", server.control("statistics"));
        std::thread::sleep(Duration::from_millis(1));
    }
}
