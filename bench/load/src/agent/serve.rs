// SPDX-License-Identifier: BSL-1.0
//! `neap-load agent LISTEN`, which generates load for one master at a time.

use super::lines::{self, Lines};
use super::{Answer, MeasurementText, Order, SILENCE_MAX, VERSION};
use crate::limits;
use crate::options::Options;
use crate::run::Outcomes;
use crate::team::Team;
use crate::terminal::shown;
use crate::worker::{Clock, Environment};
use clap::Parser as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest silence of a master before the agent ends the session. A master is silent while its other agents store keys.
const IDLE_TIME_OUT: Duration = Duration::from_secs(3600);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);

/// Serves until the program is ended. Fails if it cannot listen on this address.
pub fn serve(listen: &str) -> Result<(), String> {
    let listener = TcpListener::bind(listen).map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    eprintln!("neap-load agent: listening on {address}");
    let is_busy = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // `accept` usually fails because this process has too many open files. During the pause some of them may be closed.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if is_busy.swap(true, Ordering::AcqRel) {
            // The line is so short that it fits into any socket buffer, so sending it does not block.
            let _ = lines::send(&mut stream, &Answer::Refused { why: "is busy with another master".into() });
            continue;
        }
        let busy = Busy(is_busy.clone());
        std::thread::spawn(move || {
            let _busy = busy;
            let from = stream.peer_addr().map_or("?".into(), |address| address.to_string());
            eprintln!("neap-load agent: master {from}");
            if let Err(why) = session(stream) {
                eprintln!("neap-load agent: master {from}: {}", shown(&why));
            }
        });
    }
    Ok(())
}

/// Marks that a master is being served. Drop removes the mark, so the agent accepts the next master even after a session that panicked.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn session(stream: TcpStream) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut lines = Lines::new(stream, SILENCE_MAX)?;
    let stream = lines.try_clone()?;
    // A separate thread reads the orders, so that an order to stop, or the end of the connection, takes effect during a run.
    let (sender, orders) = sync_channel(1);
    let reader = std::thread::spawn({
        let stop = stop.clone();
        move || loop {
            match lines.next(Instant::now() + IDLE_TIME_OUT, |_| Ok(())) {
                Ok(Order::Stop {}) => stop.store(true, Ordering::Relaxed),
                Ok(order) => {
                    if sender.send(Ok(order)).is_err() {
                        return;
                    }
                }
                Err(why) => {
                    stop.store(true, Ordering::Relaxed);
                    let _ = sender.send(Err(why));
                    return;
                }
            }
        }
    });
    let result = Session { stream, orders, clock: Clock::default(), stop, team: None }.serve();
    // The reading thread ends, because the session has closed the connection.
    let _ = reader.join();
    result
}

struct Session {
    stream: TcpStream,
    orders: Receiver<Result<Order, String>>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    team: Option<(Team, Options)>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Session {
    fn serve(mut self) -> Result<(), String> {
        // A connection that sends nothing is closed, because the agent refuses other masters while the connection is open.
        match self.orders.recv_timeout(SILENCE_MAX) {
            Ok(Ok(Order::Hello { version })) => {
                self.send(&Answer::Hello { version: VERSION })?;
                if version != VERSION {
                    return Err(format!("speaks version {version}, not {VERSION}"));
                }
            }
            Ok(Err(why)) => return Err(why),
            _ => return Err("did not begin with hello".into()),
        }
        while let Ok(order) = self.orders.recv() {
            let order = match order {
                Ok(order) => order,
                // The master has finished.
                Err(why) if why == "closed the connection" => return Ok(()),
                Err(why) => return Err(why),
            };
            let answer = self.execute(order);
            self.send(&answer.unwrap_or_else(|why| Answer::Refused { why }))?;
        }
        Ok(())
    }

    fn send(&mut self, answer: &Answer) -> Result<(), String> {
        lines::send(&mut self.stream, answer)
    }

    fn execute(&mut self, order: Order) -> Result<Answer, String> {
        match order {
            Order::Clock {} => {
                let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
                Ok(Answer::Clock { now_ns: self.clock.now_ns(), unix_ns })
            }
            Order::Load { arguments, share, shares } => {
                let (mut team, options) = self.build_team(&arguments, (share, shares))?;
                let (open, asked) = self.with_keep_alives(|| team.connect())?;
                self.team = Some((team, options));
                Ok(Answer::Connected { open, asked })
            }
            Order::Preload {} => {
                let (mut team, options) = self.team.take().ok_or("there is no load yet")?;
                let keys = self.with_keep_alives(|| team.preload())?;
                self.team = Some((team, options));
                Ok(Answer::Stored { keys })
            }
            Order::Run { pace, start_ns } => {
                let (mut team, options) = self.team.take().ok_or("there is no load yet")?;
                let run = options.run_of(&pace)?;
                if self.clock.now_ns().saturating_sub(start_ns) > run.late_start_max_ns() {
                    return Err("the order came too late to start with the others: the path from the master is slow".into());
                }
                let outcomes = self.run(&mut team, |team, report| team.run(&run, &pace, start_ns, report))?;
                self.team = Some((team, options));
                let Outcomes { loading, connections, measured_ns, .. } = outcomes;
                Ok(Answer::End { measurement: Box::new(MeasurementText::new(&loading)), connections, measured_ns })
            }
            Order::Hello { .. } | Order::Stop {} => Err("that order is not expected here".into()),
        }
    }

    fn build_team(&self, arguments: &[String], share: (u64, u64)) -> Result<(Team, Options), String> {
        let words = std::iter::once("neap-load").chain(arguments.iter().map(String::as_str));
        let options = Options::try_parse_from(words).map_err(|error| first_line(&error.to_string()))?;
        options.refuse_files()?;
        if share.0 >= share.1 || share.1 > limits::LOADERS_MAX {
            return Err(format!("share {} of {} is invalid", share.0, share.1));
        }
        let load = options.load(share)?;
        limits::allow_descriptors(&load)?;
        let environment =
            Environment { clock: self.clock, stop: self.stop.clone(), time_out_ns: options.time_out_ns(), busy: options.busy };
        Ok((Team::new(load, environment, Vec::new())?, options))
    }

    /// Runs `work`, which may take long, and sends a keep-alive each second.
    fn with_keep_alives<T: Send>(&mut self, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        std::thread::scope(|scope| {
            let (done, result) = channel();
            scope.spawn(move || drop(done.send(work())));
            loop {
                match result.recv_timeout(KEEP_ALIVE_INTERVAL) {
                    Ok(result) => return result,
                    Err(RecvTimeoutError::Timeout) => self.send_or_stop(&Answer::Alive {}),
                    Err(RecvTimeoutError::Disconnected) => return Err("a thread ended".into()),
                }
            }
        })
    }

    /// Performs a run. At the end of each second, sends the figures of that second.
    fn run(
        &mut self,
        team: &mut Team,
        run: impl FnOnce(&mut Team, &mut dyn FnMut(&crate::run::Second)) -> Result<Outcomes, String>,
    ) -> Result<Outcomes, String> {
        run(team, &mut |second| self.send_or_stop(&Answer::second(second)))
    }

    /// Sends an answer. Stops the run if the send fails, because the master then no longer reads.
    fn send_or_stop(&mut self, answer: &Answer) {
        if self.send(answer).is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("the arguments of the load are invalid").to_string()
}
