// SPDX-License-Identifier: BSL-1.0
//! The server: one thread for all connections. It reads requests, holds answers until they are due, and records when they were sent.
//!
//! A recorded delay is a lower bound of the latency that a client can measure, because the delay ends before the answer is passed to the
//! kernel. The server also records its absences, the intervals in which it did not poll for requests as often as intended. During an
//! absence the server was frozen, or the host gave it no core.

use super::answer::{answer, request, After};
use super::{http, Fault, Options};
use load::distributions::Rng;
use load::recorder::new_histogram;
use load::workload::Mix;
use rand::SeedableRng as _;
use rustix::event::{epoll, Timespec};
use serde_json::{json, Value};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const LISTENER: u64 = u64::MAX;
const INPUT: u64 = u64::MAX - 1;
const MS_NS: u64 = 1_000_000;
/// The poll interval while absences are recorded. A time without polls longer than ABSENCE_NS_MIN is an absence.
const POLL_INTERVAL_NS: u64 = MS_NS;
const ABSENCE_NS_MIN: u64 = 3 * MS_NS;

/// An answer that waits until it is due.
struct Held {
    came_ns: u64,
    due_ns: u64,
    bytes: Vec<u8>,
    after: After,
}

struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    held: VecDeque<Held>,
    /// Bytes of due answers that did not fit into the socket's buffer.
    output: Vec<u8>,
    is_stalled: bool,
}

struct Server<'w> {
    options: &'w Options,
    /// Of memcached; None: the server speaks HTTP.
    mix: Option<Mix>,
    rng: Rng,
    began: Instant,
    poll: OwnedFd,
    clients: HashMap<u64, Client>,
    next_client: u64,
    clients_max: usize,
    /// Due times of answers and the numbers of their clients, the earliest first.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    delays: hdrhistogram::Histogram<u64>,
    requests: u64,
    faults: u64,
    /// The largest time from an answer's due time to its sending.
    late_max_ns: u64,
    first_request_ns: u64,
    next_freeze_ns: u64,
    /// The time of the last poll, and the absences as start and length.
    polled_ns: u64,
    absences: Vec<(u64, u64)>,
}

/// Serves until standard input ends. Returns the recorded figures.
pub fn serve(options: &Options) -> io::Result<Value> {
    let listener = TcpListener::bind(&options.listen)?;
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    epoll::add(&poll, io::stdin().as_fd(), epoll::EventData::new_u64(INPUT), epoll::EventFlags::IN)?;
    // Sets the timer slack to 1 ns, the minimum of the kernel (prctl(2), PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    println!("listening on {}", listener.local_addr()?);
    let mut server = Server {
        options,
        mix: Mix::preset(&options.preset),
        rng: Rng::seed_from_u64(options.seed),
        began: Instant::now(),
        poll,
        clients: HashMap::new(),
        next_client: 0,
        clients_max: 0,
        due: BinaryHeap::new(),
        delays: new_histogram(),
        requests: 0,
        faults: 0,
        late_max_ns: 0,
        first_request_ns: 0,
        next_freeze_ns: u64::MAX,
        polled_ns: 0,
        absences: Vec::new(),
    };
    while server.poll_once(&listener)? {}
    Ok(server.report())
}

impl Server<'_> {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Waits once and handles the events. Returns false when standard input has ended.
    fn poll_once(&mut self, listener: &TcpListener) -> io::Result<bool> {
        self.freeze();
        let now_ns = self.now_ns();
        let next_ns = self.due.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns).min(self.begin_poll(now_ns));
        let wait_ns = next_ns.saturating_sub(now_ns);
        let time_out = Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let time_out = Some(&time_out).filter(|_| next_ns != u64::MAX);
        let mut events = [MaybeUninit::uninit(); 256];
        let events = match epoll::wait(&self.poll, &mut events, time_out) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            match event.data.u64() {
                LISTENER => self.accept(listener)?,
                INPUT => {
                    if io::stdin().read(&mut [0; 256])? == 0 {
                        return Ok(false);
                    }
                }
                client => self.read(client),
            }
        }
        while let Some(&Reverse((due_ns, client))) = self.due.peek() {
            if due_ns > self.now_ns() {
                break;
            }
            self.due.pop();
            self.release(client);
        }
        Ok(true)
    }

    fn freeze(&mut self) {
        let Some(freeze) = self.options.freeze else { return };
        if self.now_ns() >= self.next_freeze_ns {
            std::thread::sleep(Duration::from_millis(freeze.for_ms));
            self.next_freeze_ns += freeze.every_ms * MS_NS;
        }
    }

    /// Records an absence if the last poll was too long ago. Returns the time of the next poll.
    fn begin_poll(&mut self, now_ns: u64) -> u64 {
        if self.options.freeze.is_none() || self.requests == 0 {
            return u64::MAX;
        }
        let absent_ns = now_ns - self.polled_ns;
        if self.polled_ns != 0 && absent_ns > ABSENCE_NS_MIN {
            self.absences.push((self.polled_ns, absent_ns));
        }
        self.polled_ns = now_ns;
        self.next_freeze_ns.min(now_ns + POLL_INTERVAL_NS)
    }

    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            epoll::add(&self.poll, &stream, epoll::EventData::new_u64(self.next_client), epoll::EventFlags::IN)?;
            let client = Client { stream, input: Vec::new(), held: VecDeque::new(), output: Vec::new(), is_stalled: false };
            self.clients.insert(self.next_client, client);
            self.next_client += 1;
            self.clients_max = self.clients_max.max(self.clients.len());
        }
    }

    fn read(&mut self, number: u64) {
        let mut buffer = [0; 64 << 10];
        let Some(client) = self.clients.get_mut(&number) else { return };
        let bytes = match client.stream.read(&mut buffer) {
            Ok(bytes) if bytes > 0 => bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return self.write(number),
            _ => return drop(self.clients.remove(&number)),
        };
        client.input.extend_from_slice(&buffer[..bytes]);
        let came_ns = self.began.elapsed().as_nanos() as u64;
        let mut used = 0;
        loop {
            let input = &client.input[used..];
            let Some((length, asked)) = (if self.mix.is_some() { request(input) } else { http::request(input) }) else { break };
            self.requests += 1;
            if self.requests == 1 {
                self.first_request_ns = came_ns;
                self.next_freeze_ns = self.options.freeze.map_or(u64::MAX, |freeze| came_ns + freeze.every_ms * MS_NS / 2);
            }
            let fault: Option<Fault> = self.options.fault.filter(|_| self.requests % self.options.every == 0);
            self.faults += u64::from(fault.is_some());
            let (bytes, after) = match &self.mix {
                Some(mix) => answer(mix, asked, fault),
                None => http::answer(&self.options.preset, asked.unwrap_or_default(), fault),
            };
            used += length;
            let delay_ns = (self.options.delay_us.draw(&mut self.rng).max(0.0) * 1000.0) as u64;
            // The answers of a connection are sent in the order of the requests.
            let due_ns = (came_ns + delay_ns).max(client.held.back().map_or(0, |before| before.due_ns));
            client.held.push_back(Held { came_ns, due_ns, bytes, after });
            self.due.push(Reverse((due_ns, number)));
        }
        client.input.drain(..used);
        self.write(number);
    }

    /// Sends the first answer held for a connection. That answer MUST be due.
    fn release(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number).filter(|client| !client.is_stalled) else { return };
        let Some(held) = client.held.pop_front() else { return };
        client.output.extend_from_slice(&held.bytes);
        let now_ns = self.now_ns();
        self.delays.saturating_record(now_ns - held.came_ns);
        self.late_max_ns = self.late_max_ns.max(now_ns - held.due_ns);
        self.write(number);
        match (held.after, self.clients.get_mut(&number)) {
            (After::Stall, Some(client)) => client.is_stalled = true,
            (After::Close, _) => drop(self.clients.remove(&number)),
            (After::Reset, Some(client)) => {
                // Closing with a linger time of zero resets the connection (socket(7), SO_LINGER).
                let _ = rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO));
                drop(self.clients.remove(&number));
            }
            _ => {}
        }
    }

    fn write(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number).filter(|client| !client.output.is_empty()) else { return };
        let written = client.stream.write(&client.output);
        match written {
            Ok(bytes) => drop(client.output.drain(..bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return drop(self.clients.remove(&number)),
        }
        let waits = if client.output.is_empty() { epoll::EventFlags::IN } else { epoll::EventFlags::IN | epoll::EventFlags::OUT };
        // If `modify` fails, the client waits for its answer and reports a time-out.
        let _ = epoll::modify(&self.poll, &client.stream, epoll::EventData::new_u64(number), waits);
    }

    fn report(&self) -> Value {
        let percentile = |p: f64| self.delays.value_at_quantile(p / 100.0);
        json!({
            "requests": self.requests,
            "faults": self.faults,
            "connections_max": self.clients_max,
            "answers": self.delays.len(),
            "delay": {"p50_ns": percentile(50.0), "p99_ns": percentile(99.0), "p99.9_ns": percentile(99.9), "max_ns": self.delays.max()},
            "late_max_ns": self.late_max_ns,
            // Each absence (a time without polls) is written as [start, length]. The start counts from the first request.
            "absences_ns": self.absences.iter().map(|(at, length)| [at.saturating_sub(self.first_request_ns), *length]).collect::<Vec<_>>(),
        })
    }
}
