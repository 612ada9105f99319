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
/// Longer than the clients' delayed acknowledgements.
const QUIET_NS: u64 = 50_000_000;
/// From the window to the end of all faults.
const CALM_NS_MAX: u64 = 600_000_000_000;
/// Until all connections are open again.
const REOPENING_NS_MAX: u64 = 120_000_000_000;
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
    /// Requests that must be answered after the drain, on new connections.
    pub recovery: Option<u64>,
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
    /// Until frames and delayed acknowledgements have arrived.
    QuietBefore {
        end_ns: u64,
    },
    StatisticsBefore,
    CountingCores,
    StartingEarlyLog,
    StatisticsAtStart,
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
    /// Until the guest's driver has noticed that the link is up.
    Settling {
        end_ns: u64,
    },
    Reopening {
        end_ns: u64,
    },
    Recovering {
        end_ns: u64,
    },
    RecoveryDrain {
        end_ns: u64,
    },
    QuietAfter {
        end_ns: u64,
    },
    StatisticsAtEnd,
    StoppingLog,
    StatisticsAfter,
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
    /// No planned incident is to come, and the link is up.
    is_calm: bool,
    /// Control's answers to `stats`: before and after the log's begin, and before and after its end.
    statistics: Vec<String>,
}

impl Experiment {
    pub fn new(options: ExperimentOptions, load: Option<Load>, control: NeapControl) -> Self {
        let stage = if load.is_some() { Stage::LinkDown } else { Stage::Unused };
        Self { options, load, control, answer: None, stage, cores: 0, window_ns: (0, 0), is_calm: true, statistics: Vec::new() }
    }

    pub fn phase(&self) -> Phase {
        match self.stage {
            Stage::Unused
            | Stage::LinkDown
            | Stage::Connecting
            | Stage::Preloading
            | Stage::Setting(_)
            | Stage::QuietBefore { .. }
            | Stage::StatisticsBefore
            | Stage::CountingCores
            | Stage::StartingEarlyLog
            | Stage::StatisticsAtStart => Phase::SetUp,
            Stage::WarmUp { .. } | Stage::StartingLog | Stage::BeforeWindow { .. } => Phase::WarmUp,
            Stage::Window { .. } => Phase::Window,
            Stage::Finished => Phase::Finished,
            _ => Phase::Drain,
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

    /// The beginning of the window, if it has begun.
    pub fn window_from_ns(&self) -> Option<u64> {
        Some(self.window_ns.0).filter(|_| self.phase() >= Phase::Window)
    }

    /// Control's answers to `stats`: before and after the log's begin, and before and after its end.
    pub fn statistics(&self) -> &[String] {
        &self.statistics
    }

    /// True if no planned incident is to come, and the link is up.
    pub fn set_calm(&mut self, is_calm: bool) {
        self.is_calm = is_calm;
    }

    /// A client ends a connection of the load.
    pub fn end_connection(&mut self, index: usize, at_once: bool, now_ns: u64, hosts: &mut [Host]) -> Result<(), String> {
        self.load.as_mut().map_or(Ok(()), |load| load.end_connection(index, at_once, now_ns, hosts))
    }

    /// The time at which the phase or the stage changes, if it is known.
    pub fn change_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::WarmUp { end_ns } | Stage::BeforeWindow { end_ns } | Stage::Window { end_ns } => Some(end_ns),
            Stage::QuietBefore { end_ns } => Some(end_ns.min(self.options.set_up_ns_max)),
            Stage::QuietAfter { end_ns } | Stage::Reopening { end_ns } | Stage::Settling { end_ns } => Some(end_ns),
            Stage::Recovering { end_ns } | Stage::RecoveryDrain { end_ns } => Some(end_ns),
            // The next incident, an answer to a command, or the link changes this.
            Stage::Draining { from_ns, .. } if !self.is_calm => Some(from_ns + CALM_NS_MAX),
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
            Stage::Reopening { .. } => "after the faults, the guest did not accept all connections again",
            _ => "the guest's control did not answer",
        }
    }

    /// The stage that follows, if the present one is over.
    fn next_stage(&mut self, now_ns: u64, hosts: &mut [Host], link_is_up: bool) -> Result<Option<Stage>, String> {
        let Some(load) = &mut self.load else { return Ok(None) };
        if !self.is_calm {
            if let Stage::Draining { from_ns, end_ns } = &mut self.stage {
                if now_ns >= *from_ns + CALM_NS_MAX {
                    return Err(format!("{} s after the window the link is down, or faults go on", CALM_NS_MAX / 1_000_000_000));
                }
                *end_ns = now_ns + self.options.drain_ns_max;
                return Ok(None);
            }
        }
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
            Stage::QuietBefore { end_ns } if now_ns >= end_ns => {
                self.control.ask("stats", now_ns, &mut hosts[CONTROL_HOST])?;
                Some(Stage::StatisticsBefore)
            }
            Stage::StatisticsBefore if take_statistics(&mut self.answer, &mut self.statistics) => Some(self.prepare_log(now_ns, hosts)?),
            Stage::CountingCores => match take_line(&mut self.answer) {
                Some(status) => {
                    let cores = number(&status, "cores").filter(|cores| (1..=CORES_MAX).contains(cores));
                    self.cores = cores.ok_or_else(|| format!("control's status names no number of cores: {status:?}"))?;
                    if self.options.recovery.is_some() {
                        self.control.ask("start", now_ns, &mut hosts[CONTROL_HOST])?;
                        Some(Stage::StartingEarlyLog)
                    } else {
                        Some(self.warm_up(now_ns)?)
                    }
                }
                None => None,
            },
            Stage::StartingEarlyLog if take_line(&mut self.answer).is_some() => {
                self.control.ask("stats", now_ns, &mut hosts[CONTROL_HOST])?;
                Some(Stage::StatisticsAtStart)
            }
            Stage::StatisticsAtStart if take_statistics(&mut self.answer, &mut self.statistics) => Some(self.warm_up(now_ns)?),
            Stage::WarmUp { end_ns } if now_ns >= end_ns => {
                if self.options.log.is_some() && self.options.recovery.is_none() {
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
                if self.options.recovery.is_some() {
                    Some(Stage::Settling { end_ns: now_ns + QUIET_NS })
                } else {
                    Some(self.stop_log(now_ns, hosts)?)
                }
            }
            Stage::Settling { end_ns } if now_ns >= end_ns => {
                load.reopen(now_ns, hosts);
                Some(Stage::Reopening { end_ns: now_ns + REOPENING_NS_MAX })
            }
            Stage::Reopening { .. } if load.is_connected() => {
                let end_ns = load.begin_recovery(now_ns, self.options.recovery.unwrap_or(1))?;
                Some(Stage::Recovering { end_ns })
            }
            Stage::Reopening { end_ns } if now_ns >= end_ns => {
                return Err(format!("{} within {} s of virtual time", self.missing(), REOPENING_NS_MAX / 1_000_000_000));
            }
            Stage::Recovering { end_ns } if now_ns >= end_ns => Some(Stage::RecoveryDrain { end_ns: now_ns + self.options.drain_ns_max }),
            Stage::RecoveryDrain { end_ns } if load.is_drained() || now_ns >= end_ns => {
                load.give_up();
                load.stop();
                Some(Stage::QuietAfter { end_ns: now_ns + QUIET_NS })
            }
            Stage::QuietAfter { end_ns } if now_ns >= end_ns => {
                self.control.ask("stats", now_ns, &mut hosts[CONTROL_HOST])?;
                Some(Stage::StatisticsAtEnd)
            }
            Stage::StatisticsAtEnd if take_statistics(&mut self.answer, &mut self.statistics) => Some(self.stop_log(now_ns, hosts)?),
            Stage::StoppingLog if take_line(&mut self.answer).is_some() => {
                if self.options.recovery.is_some() {
                    self.control.ask("stats", now_ns, &mut hosts[CONTROL_HOST])?;
                    Some(Stage::StatisticsAfter)
                } else {
                    self.control.fetch_log(0, now_ns, &mut hosts[CONTROL_HOST])?;
                    Some(Stage::FetchingLog(0))
                }
            }
            Stage::StatisticsAfter if take_statistics(&mut self.answer, &mut self.statistics) => {
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
        if self.options.recovery.is_some() {
            return Ok(Some(Stage::QuietBefore { end_ns: now_ns + QUIET_NS }));
        }
        self.prepare_log(now_ns, hosts).map(Some)
    }

    fn prepare_log(&mut self, now_ns: u64, hosts: &mut [Host]) -> Result<Stage, String> {
        if self.options.log.is_some() {
            self.control.ask("status", now_ns, &mut hosts[CONTROL_HOST])?;
            return Ok(Stage::CountingCores);
        }
        self.warm_up(now_ns)
    }

    fn stop_log(&mut self, now_ns: u64, hosts: &mut [Host]) -> Result<Stage, String> {
        if self.options.log.is_none() {
            return Ok(Stage::Finished);
        }
        self.control.ask("stop", now_ns, &mut hosts[CONTROL_HOST])?;
        Ok(Stage::StoppingLog)
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
        Answer::Refused(_) | Answer::Log(_) => None,
    }
}

/// True if the answer to `stats` has arrived.
fn take_statistics(answer: &mut Option<Answer>, statistics: &mut Vec<String>) -> bool {
    let line = take_line(answer);
    let arrived = line.is_some();
    statistics.extend(line);
    arrived
}
