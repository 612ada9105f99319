// SPDX-License-Identifier: BSL-1.0
//! `neap-load agent LISTEN`: loads on the word of a master, one at a time.

use super::lines::{self, Lines};
use super::{Answer, MeasurementText, Order, SILENCE, VERSION};
use crate::limits;
use crate::options::Options;
use crate::run::Outcomes;
use crate::team::Team;
use crate::terminal::shown;
use crate::worker::{Clock, Surroundings};
use clap::Parser as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel, Receiver, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A master whose other agents are still storing keys says nothing for a while; one that is silent for longer has forgotten us.
const IDLE: Duration = Duration::from_secs(3600);
/// Between words while at work.
const ALIVE: Duration = Duration::from_secs(1);

/// Serves until the program is ended. Err: it cannot listen there.
pub fn serve(listen: &str) -> Result<(), String> {
    let listener = TcpListener::bind(listen).map_err(|error| format!("cannot listen on {listen}: {error}"))?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    eprintln!("neap-load agent: listening on {address}");
    let is_busy = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Out of open files, as a rule: it passes.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if is_busy.swap(true, Ordering::AcqRel) {
            // A line this short fits into any socket: this does not wait.
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

/// One master is being served. Also a session that panics makes room for the next master.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

fn session(stream: TcpStream) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut lines = Lines::new(stream, SILENCE)?;
    let stream = lines.try_clone()?;
    // Orders are read at once, so that a stop, or the master's end, is heard while a run is on.
    let (sender, orders) = sync_channel(1);
    let reader = std::thread::spawn({
        let stop = stop.clone();
        move || loop {
            match lines.next(Instant::now() + IDLE, |_| Ok(())) {
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
    // The reader ends with the connection, which the session has closed.
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
        // Who connects and says nothing must not keep others out.
        match self.orders.recv_timeout(SILENCE) {
            Ok(Ok(Order::Hello { version })) => {
                self.say(&Answer::Hello { version: VERSION })?;
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
                // The master is done.
                Err(why) if why == "closed the connection" => return Ok(()),
                Err(why) => return Err(why),
            };
            let answer = self.obey(order);
            self.say(&answer.unwrap_or_else(|why| Answer::Refused { why }))?;
        }
        Ok(())
    }

    fn say(&mut self, answer: &Answer) -> Result<(), String> {
        lines::send(&mut self.stream, answer)
    }

    fn obey(&mut self, order: Order) -> Result<Answer, String> {
        match order {
            Order::Clock {} => {
                let unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
                Ok(Answer::Clock { now_ns: self.clock.now_ns(), unix_ns })
            }
            Order::Load { arguments, share, shares } => {
                let (mut team, options) = self.hire(&arguments, (share, shares))?;
                let (open, asked) = self.at_work(|| team.connect())?;
                self.team = Some((team, options));
                Ok(Answer::Connected { open, asked })
            }
            Order::Preload {} => {
                let (mut team, options) = self.team.take().ok_or("there is no load yet")?;
                let keys = self.at_work(|| team.preload())?;
                self.team = Some((team, options));
                Ok(Answer::Stored { keys })
            }
            Order::Run { pace, start_ns } => {
                let (mut team, options) = self.team.take().ok_or("there is no load yet")?;
                let run = options.run_of(&pace)?;
                if self.clock.now_ns().saturating_sub(start_ns) > run.late_start_max_ns() {
                    return Err("was told too late to start with the others: the way from the master is slow".into());
                }
                let outcomes = self.run(&mut team, |team, tell| team.run(&run, &pace, start_ns, tell))?;
                self.team = Some((team, options));
                let Outcomes { loading, connections, measured_ns, .. } = outcomes;
                Ok(Answer::End { measurement: Box::new(MeasurementText::new(&loading)), connections, measured_ns })
            }
            Order::Hello { .. } | Order::Stop {} => Err("that order has no place here".into()),
        }
    }

    fn hire(&self, arguments: &[String], share: (u64, u64)) -> Result<(Team, Options), String> {
        let words = std::iter::once("neap-load").chain(arguments.iter().map(String::as_str));
        let options = Options::try_parse_from(words).map_err(|error| first_line(&error.to_string()))?;
        options.refuse_files()?;
        if share.0 >= share.1 || share.1 > limits::LOADERS_MAX {
            return Err(format!("share {} of {} makes no sense", share.0, share.1));
        }
        let load = options.load(share)?;
        limits::allow_descriptors(&load)?;
        let around = Surroundings { clock: self.clock, stop: self.stop.clone(), time_out_ns: options.time_out_ns(), busy: options.busy };
        Ok((Team::new(load, around, Vec::new())?, options))
    }

    /// Does what may take long, and says each second that it is still at it.
    fn at_work<T: Send>(&mut self, work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
        std::thread::scope(|scope| {
            let (done, result) = channel();
            scope.spawn(move || drop(done.send(work())));
            loop {
                match result.recv_timeout(ALIVE) {
                    Ok(result) => return result,
                    Err(RecvTimeoutError::Timeout) => self.say_or_stop(&Answer::Alive {}),
                    Err(RecvTimeoutError::Disconnected) => return Err("a thread ended".into()),
                }
            }
        })
    }

    /// A run; its seconds are told as they come.
    fn run(
        &mut self,
        team: &mut Team,
        run: impl FnOnce(&mut Team, &mut dyn FnMut(&crate::run::Second)) -> Result<Outcomes, String>,
    ) -> Result<Outcomes, String> {
        run(team, &mut |second| self.say_or_stop(&Answer::second(second)))
    }

    /// A master that does not listen any more is no reason to go on.
    fn say_or_stop(&mut self, answer: &Answer) {
        if self.say(answer).is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("the load's words make no sense").to_string()
}
