// SPDX-License-Identifier: BSL-1.0
//! The program with its card, driven as by the plugin, but without QEMU. This test has the clock, a driver of the card with one ring in
//! each direction, and a guest's memcached behind it.

mod bus;
#[path = "../common/service.rs"]
mod service;

use bus::{Bus, Link, Memory, CONFIG};
use serde_json::Value;
use service::Service;
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use world::clients::Server;
use world::link::{Field, NEVER_NS};

const SERVER: Server = Server { address: Ipv4Addr::new(10, 0, 0, 2), mac: [0x02, 0x82, 0x59, 0x90, 0, 1] };
const TIME_OUT: Duration = Duration::from_secs(60);
const FINISHED: u64 = 4;
/// From the message of a vector to the driver's work.
const WAKE_NS: u64 = 2000;
/// Each access to a register.
const ACCESS_NS: u64 = 300;

const MEMORY: u64 = 1 << 20;
const RECEIVE_RING: u64 = 0x1000;
const TRANSMIT_RING: u64 = 0x2000;
const RECEIVE_BUFFERS: u64 = 0x10000;
const TRANSMIT_BUFFERS: u64 = 0x80000;
const RING: u64 = 64;
const RDT: u64 = 0x1018;
const TDT: u64 = 0x6018;
const LINKS: u64 = 0x42A4;

struct Program {
    folder: PathBuf,
    child: Child,
}

impl Program {
    fn start(name: &str, words: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("world-link-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let words = format!("--socket-path DIR/card --driven DIR/link {words}").replace("DIR", folder.to_str().unwrap());
        // A tilde stands for a blank inside a word.
        let words = words.split_whitespace().map(|word| word.replace('~', " "));
        let mut child = Command::new(env!("CARGO_BIN_EXE_neap-world"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "neap-world: ready\n");
        Self { folder, child }
    }

    /// Waits for its end. Status, and what it wrote to standard error.
    fn end(mut self) -> (i32, String) {
        let until = Instant::now() + TIME_OUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code().unwrap_or(-1);
            }
            assert!(Instant::now() < until, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut text).unwrap();
        (status, text)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Clock, CPU and driver.
struct Machine {
    link: Link,
    bus: Bus,
    memory: Memory,
    service: Service,
    now_ns: u64,
    /// The driver works then.
    work_ns: Option<u64>,
    received: u64,
    sent: u64,
    phases: Vec<u64>,
}

impl Machine {
    fn new(program: &Program) -> Self {
        let link = Link::connect(&program.folder.join("link"));
        let bus = Bus::connect(&program.folder.join("card"));
        let (memory, service) = (Memory::new(MEMORY), Service::new(SERVER));
        Self { link, bus, memory, service, now_ns: 0, work_ns: None, received: 0, sent: 0, phases: vec![0] }
    }

    fn set_register(&mut self, offset: u64, value: u32) {
        self.now_ns += ACCESS_NS;
        self.link.page.store(Field::Now, self.now_ns);
        self.bus.set_register(offset, value);
        self.look_at_page();
    }

    fn look_at_page(&mut self) {
        if self.link.page.take_vectors() & 1 != 0 {
            self.work_ns.get_or_insert(self.now_ns + WAKE_NS);
        }
        let phase = self.link.page.load(Field::Phase);
        if self.phases.last() != Some(&phase) {
            self.phases.push(phase);
        }
    }

    fn bring_up(&mut self) {
        self.bus.map(MEMORY, &self.memory);
        self.bus.enable_messages();
        self.bus.write(CONFIG, 4, &[0x06, 0x04]);
        for place in 0..RING {
            self.memory.write(RECEIVE_RING + place * 16, &(RECEIVE_BUFFERS + place * 2048).to_le_bytes());
        }
        for (offset, value) in [
            // GPIE, EIAC, IVAR, EIMS_EX, FCTRL, RDBAL, RDLEN, SRRCTL, RXDCTL, RDT, RXCTRL, DMATXCTL, TDBAL, TDLEN, TXDCTL
            (0x898, 0x10),
            (0x810, 0xFFFF),
            (0x900, 0x0000_8080),
            (0xAA0, 1),
            (0x5080, 0x700),
            (0x1000, RECEIVE_RING as u32),
            (0x1008, RING as u32 * 16),
            (0x1014, 0x0200_0002),
            (0x1028, 1 << 25),
            (RDT, RING as u32 - 1),
            (0x3000, 1),
            (0x4A80, 0x8100_0001),
            (0x6000, TRANSMIT_RING as u32),
            (0x6008, RING as u32 * 16),
            (0x6028, 1 << 25),
        ] {
            self.set_register(offset, value);
        }
        for _ in 0..1000 {
            if self.bus.register(LINKS) >> 30 & 1 == 1 {
                return;
            }
            self.advance(self.now_ns + 1_000_000);
        }
        panic!("the link does not come up");
    }

    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        self.link.advance(self.now_ns);
        self.look_at_page();
    }

    /// Takes the frames of the receive ring, lets the guest work, and sends its frames.
    fn work(&mut self) {
        loop {
            let place = self.received % RING;
            let status = self.memory.u64_at(RECEIVE_RING + place * 16 + 8);
            if status & 1 == 0 {
                break;
            }
            let length = (status >> 32 & 0xFFFF) as usize;
            self.service.host.receive(self.memory.read(RECEIVE_BUFFERS + place * 2048, length));
            self.memory.write(RECEIVE_RING + place * 16, &(RECEIVE_BUFFERS + place * 2048).to_le_bytes());
            self.memory.write(RECEIVE_RING + place * 16 + 8, &[0; 8]);
            self.received += 1;
            self.set_register(RDT, ((self.received + RING - 1) % RING) as u32);
        }
        self.service.work(self.now_ns);
        let mut frames = 0;
        while let Some(frame) = self.service.host.take_frame() {
            let (descriptor, buffer) = (TRANSMIT_RING + self.sent % RING * 16, TRANSMIT_BUFFERS + self.sent % RING * 2048);
            self.memory.write(buffer, &frame);
            let command = frame.len() as u64 | 0x2B30_0000 | (frame.len() as u64) << 46;
            self.memory.write(descriptor, &buffer.to_le_bytes());
            self.memory.write(descriptor + 8, &command.to_le_bytes());
            self.sent += 1;
            frames += 1;
            assert!(frames < RING);
        }
        if frames != 0 {
            self.set_register(TDT, (self.sent % RING) as u32);
        }
    }

    /// Runs until the load has finished. Err: the program has failed.
    fn run(&mut self) -> Result<(), ()> {
        while self.phases.last() != Some(&FINISHED) {
            if self.link.page.load(Field::Failed) != 0 {
                return Err(());
            }
            let next_ns = self.link.page.load(Field::Next);
            let timer_ns = self.service.host.next_ns();
            let at_ns = [Some(next_ns), self.work_ns, timer_ns].into_iter().flatten().min().unwrap();
            assert!(at_ns != NEVER_NS, "nothing happens any more");
            self.advance(at_ns);
            if [self.work_ns, timer_ns].into_iter().flatten().any(|at_ns| at_ns <= self.now_ns) {
                self.work_ns = None;
                self.work();
            }
        }
        Ok(())
    }
}

fn run(name: &str, words: &str) -> Value {
    let program = Program::start(name, &format!("--strict --out DIR/out.json {words}"));
    let mut machine = Machine::new(&program);
    machine.bring_up();
    machine.run().unwrap();
    assert_eq!(machine.phases, [0, 1, 2, 3, 4]);
    let report = serde_json::from_str(&std::fs::read_to_string(program.folder.join("out.json")).unwrap()).unwrap();
    drop(machine);
    let (status, text) = program.end();
    assert_eq!(status, 0, "{text}");
    report
}

#[test]
fn a_driven_card_serves_a_load_and_repeats_it_to_the_nanosecond() {
    let words = "--load etc --keys 300 --rate 20000 --window 50ms --check-bytes --fault drop~rx~chance~0.002 --fault at~60ms~lose~0~next~2";
    let report = run("first", words);
    assert_eq!((&report["answered"], report["failed"].as_u64()), (&report["offered"], Some(0)), "{report}");
    assert!(report["offered"].as_u64().unwrap() > 800, "{report}");
    assert_eq!(report, run("second", words));
}

#[test]
fn a_machine_that_ends_early_or_a_guest_that_is_silent_is_reported() {
    let program = Program::start("early", "--load usr");
    drop(Machine::new(&program));
    let (status, text) = program.end();
    assert_eq!(status, 1, "{text}");
    assert!(text.starts_with("neap-world: the machine ended during set-up") && text.lines().count() == 1, "{text}");

    let program = Program::start("silent", "--load usr --set-up-limit 3ms");
    let mut machine = Machine::new(&program);
    assert_eq!(machine.run(), Err(()));
    assert_eq!(machine.link.page.load(Field::Next), NEVER_NS);
    drop(machine);
    let (status, text) = program.end();
    assert!(status == 1 && text.contains("did not bring up the card's link within 0.003 s"), "{status} {text}");
}

#[test]
fn without_a_load_the_machine_may_end_at_any_time() {
    let program = Program::start("plain", "");
    let mut machine = Machine::new(&program);
    machine.bring_up();
    machine.advance(5_000_000_000);
    drop(machine);
    let (status, text) = program.end();
    assert_eq!((status, text.as_str()), (0, ""));
}
