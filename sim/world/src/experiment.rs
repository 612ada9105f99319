// SPDX-License-Identifier: BSL-1.0
//! The course of a run: the guest comes up, connections open, keys are stored, settings are made; warm-up, window, drain; the logs.
//!
//! The plugin takes a snapshot of energy and counters at each change of phase. So the window begins and ends at moments that are known in
//! advance, and only then. The other changes happen at the end of what they wait for.

use crate::clients::Host;
use crate::load::Load;
use crate::neap_control::{number, Answer, NeapControl};
use std::path::PathBuf;

/// From the answer to `start` to the window.
const WINDOW_LEAD_NS: u64 = 100_000;
/// The plugin MUST see each phase, so none begins and ends at one moment.
const SHORTEST_PHASE_NS: u64 = 1;
/// The client that has the control connection.
const CONTROL_HOST: usize = 0;
/// As many as a machine can have.
const CORES_MAX: u64 = 256;

#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    pub warm_up_ns: u64,
    pub window_ns: u64,
    /// After the window: time for requests that have not ended.
    pub drain_ns_max: u64,
    /// Time until the warm-up begins.
    pub set_up_ns_max: u64,
    /// Lines for control before the warm-up.
    pub settings: Vec<String>,
    /// The folder for the cores' logs.
    pub log: Option<PathBuf>,
}

/// The page's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    SetUp = 0,
    WarmUp = 1,
    Window = 2,
    Drain = 3,
    Finished = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is no load: nothing happens.
    Unused,
    LinkDown,
    Connecting,
    Preloading,
    /// The answer to the setting with this number is awaited.
    Setting(usize),
    CountingCores,
    WarmUp {
        end_ns: u64,
    },
    StartingLog,
    BeforeWindow {
        end_ns: u64,
    },
    Window {
        end_ns: u64,
    },
    Draining {
        from_ns: u64,
        end_ns: u64,
    },
    StoppingLog,
    FetchingLog(u64),
    Finished,
}

pub struct Experiment {
    options: ExperimentOptions,
    load: Option<Load>,
    control: NeapControl,
    answer: Option<Answer>,
    stage: Stage,
    cores: u64,
    /// From and to, in virtual time.
    window_ns: (u64, u64),
}

impl Experiment {
    pub fn new(options: ExperimentOptions, load: Option<Load>, control: NeapControl) -> Self {
        let stage = if load.is_some() { Stage::LinkDown } else { Stage::Unused };
        Self { options, load, control, answer: None, stage, cores: 0, window_ns: (0, 0) }
    }

    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Unused | Stage::LinkDown | Stage::Connecting | Stage::Preloading | Stage::Setting(_) | Stage::CountingCores => {
                Phase::SetUp
            }
            Stage::WarmUp { .. } | Stage::StartingLog | Stage::BeforeWindow { .. } => Phase::WarmUp,
            Stage::Window { .. } => Phase::Window,
            Stage::Draining { .. } | Stage::StoppingLog | Stage::FetchingLog(_) => Phase::Drain,
            Stage::Finished => Phase::Finished,
        }
    }

    /// True if the run has work that is not finished.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Unused | Stage::Finished)
    }

    pub fn load(&self) -> Option<&Load> {
        self.load.as_ref()
    }

    /// From and to; of a finished run.
    pub fn window_ns(&self) -> (u64, u64) {
        self.window_ns
    }

    /// The time at which the phase changes, if it is known.
    pub fn change_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::WarmUp { end_ns } | Stage::BeforeWindow { end_ns } | Stage::Window { end_ns } => Some(end_ns),
            Stage::Draining { from_ns, .. } if self.load.as_ref().is_some_and(Load::is_drained) => Some(from_ns + SHORTEST_PHASE_NS),
            Stage::Draining { end_ns, .. } => Some(end_ns),
            _ if self.phase() == Phase::SetUp && self.is_under_way() => Some(self.options.set_up_ns_max),
            _ => None,
        }
    }

    /// The next time at which `act` has work.
    pub fn next_ns(&mut self) -> Option<u64> {
        let load_ns = self.load.as_mut().and_then(Load::next_ns);
        load_ns.into_iter().chain(self.control.next_ns()).chain(self.change_ns()).min()
    }

    /// A host's stack has worked.
    pub fn service(&mut self, now_ns: u64, host: usize, hosts: &mut [Host]) -> Result<(), String> {
        if let Some(load) = &mut self.load {
            load.service(now_ns, host, hosts)?;
        }
        if host == CONTROL_HOST {
            if let Some(answer) = self.control.service(now_ns, &mut hosts[host])? {
                self.answer = Some(answer);
            }
        }
        Ok(())
    }

    /// Performs what is due. Err: one line that says why the run cannot go on.
    pub fn act(&mut self, now_ns: u64, hosts: &mut [Host], link_is_up: bool) -> Result<(), String> {
        if self.load.is_none() {
            return Ok(());
        }
        if self.control.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.service(now_ns, CONTROL_HOST, hosts)?;
        }
        // Before the requests of this moment, so that the first request of the window is measured.
        while let Some(next) = self.next_stage(now_ns, hosts, link_is_up)? {
            self.stage = next;
        }
        if self.phase() == Phase::SetUp && now_ns >= self.options.set_up_ns_max {
            let seconds = self.options.set_up_ns_max as f64 / 1e9;
            return Err(format!("{} within {seconds} s of virtual time", self.missing()));
        }
        self.load.as_mut().map_or(Ok(()), |load| load.act(now_ns, hosts))
    }

    fn missing(&self) -> &'static str {
        match self.stage {
            Stage::LinkDown => "the guest did not bring up the card's link",
            Stage::Connecting => "the guest did not accept all connections to its memcached",
            Stage::Preloading => "the guest did not store all keys",
            _ => "the guest's control did not answer",
        }
    }

    /// The stage that follows, if the present one is over.
    fn next_stage(&mut self, now_ns: u64, hosts: &mut [Host], link_is_up: bool) -> Result<Option<Stage>, String> {
        let Some(load) = &mut self.load else { return Ok(None) };
        Ok(match self.stage {
            Stage::LinkDown if link_is_up => {
                load.connect(now_ns);
                Some(Stage::Connecting)
            }
            Stage::Connecting if load.is_connected() => {
                load.begin_preload();
                Some(Stage::Preloading)
            }
            Stage::Preloading if load.is_preloaded() => self.make_setting(0, now_ns, hosts)?,
            Stage::Setting(number) if take_line(&mut self.answer).is_some() => self.make_setting(number + 1, now_ns, hosts)?,
            Stage::CountingCores => match take_line(&mut self.answer) {
                Some(status) => {
                    let cores = number(&status, "cores").filter(|cores| (1..=CORES_MAX).contains(cores));
                    self.cores = cores.ok_or_else(|| format!("control's status names no number of cores: {status:?}"))?;
                    Some(self.warm_up(now_ns)?)
                }
                None => None,
            },
            Stage::WarmUp { end_ns } if now_ns >= end_ns => {
                if self.options.log.is_some() {
                    self.control.ask("start", now_ns, &mut hosts[CONTROL_HOST])?;
                    Some(Stage::StartingLog)
                } else {
                    Some(self.open_window(now_ns))
                }
            }
            Stage::StartingLog if take_line(&mut self.answer).is_some() => Some(Stage::BeforeWindow { end_ns: now_ns + WINDOW_LEAD_NS }),
            Stage::BeforeWindow { end_ns } if now_ns >= end_ns => Some(self.open_window(now_ns)),
            Stage::Window { end_ns } if now_ns >= end_ns => {
                Some(Stage::Draining { from_ns: now_ns, end_ns: now_ns + self.options.drain_ns_max })
            }
            Stage::Draining { from_ns, end_ns } if load.is_drained() && now_ns > from_ns || now_ns >= end_ns => {
                load.give_up();
                load.stop();
                if self.options.log.is_some() {
                    self.control.ask("stop", now_ns, &mut hosts[CONTROL_HOST])?;
                    Some(Stage::StoppingLog)
                } else {
                    Some(Stage::Finished)
                }
            }
            Stage::StoppingLog if take_line(&mut self.answer).is_some() => {
                self.control.fetch_log(0, now_ns, &mut hosts[CONTROL_HOST])?;
                Some(Stage::FetchingLog(0))
            }
            Stage::FetchingLog(core) => self.take_log(core, now_ns, hosts)?,
            _ => None,
        })
    }

    fn make_setting(&mut self, place: usize, now_ns: u64, hosts: &mut [Host]) -> Result<Option<Stage>, String> {
        if let Some(line) = self.options.settings.get(place) {
            self.control.ask(line, now_ns, &mut hosts[CONTROL_HOST])?;
            return Ok(Some(Stage::Setting(place)));
        }
        if self.options.log.is_some() {
            self.control.ask("status", now_ns, &mut hosts[CONTROL_HOST])?;
            return Ok(Some(Stage::CountingCores));
        }
        self.warm_up(now_ns).map(Some)
    }

    fn warm_up(&mut self, now_ns: u64) -> Result<Stage, String> {
        if let Some(load) = &mut self.load {
            load.begin_requests(now_ns)?;
        }
        Ok(Stage::WarmUp { end_ns: now_ns + self.options.warm_up_ns.max(SHORTEST_PHASE_NS) })
    }

    fn open_window(&mut self, now_ns: u64) -> Stage {
        let end_ns = now_ns + self.options.window_ns;
        if let Some(load) = &mut self.load {
            load.begin_window(now_ns, self.options.window_ns);
        }
        self.window_ns = (now_ns, end_ns);
        Stage::Window { end_ns }
    }

    fn take_log(&mut self, core: u64, now_ns: u64, hosts: &mut [Host]) -> Result<Option<Stage>, String> {
        let (Some(Answer::Log(log)), Some(folder)) = (self.answer.take(), &self.options.log) else { return Ok(None) };
        let path = folder.join(format!("core{core}.log"));
        std::fs::write(&path, log).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        if core + 1 == self.cores {
            return Ok(Some(Stage::Finished));
        }
        self.control.fetch_log(core + 1, now_ns, &mut hosts[CONTROL_HOST])?;
        Ok(Some(Stage::FetchingLog(core + 1)))
    }
}

fn take_line(answer: &mut Option<Answer>) -> Option<String> {
    match answer.take()? {
        Answer::Line(line) => Some(line),
        Answer::Log(_) => None,
    }
}
