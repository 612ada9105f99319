// SPDX-License-Identifier: BSL-1.0
//! The course of a run: the guest comes up, connections open, keys are stored, settings are made; warm-up, window, drain; the logs. In a
//! sequence the connections are then closed, and the next load begins with its own.
//!
//! The plugin takes a snapshot of energy and counters at each change of phase. So the window begins and ends at moments that are known in
//! advance, and only then. The other changes happen at the end of what they wait for.

use crate::clients::Host;
use crate::load::Load;
use crate::neap_control::{number, Answer, NeapControl};
use crate::plan::PlannedLoad;
use crate::stage::Stage;

pub use crate::stage::Phase;

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
/// Until all connections of a load are closed.
const CLOSING_NS_MAX: u64 = 10_000_000_000;
/// As many as a machine can have.
const CORES_MAX: u64 = 256;

#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    /// One after the other. None: nothing happens.
    pub loads: Vec<PlannedLoad>,
    /// The loads come from a file, so messages name them.
    pub is_sequence: bool,
    /// Lines for control after the set-up of the first load. The answers are kept.
    pub asked: Vec<String>,
    /// Time until the warm-up begins, from the reset or from the end of the load before.
    pub set_up_ns_max: u64,
    /// Requests that must be answered after the drain, on new connections.
    pub recovery: Option<u64>,
}

pub struct Experiment {
    options: ExperimentOptions,
    /// Those that have begun, in the order of the plan. The last one is under way.
    loads: Vec<Load>,
    hosts: usize,
    control: NeapControl,
    answer: Option<Answer>,
    stage: Stage,
    /// The set-up of this load fails then.
    set_up_end_ns: u64,
    cores: u64,
    /// From and to, in virtual time, of each load that has begun.
    windows_ns: Vec<(u64, u64)>,
    /// No planned incident is to come, and the link is up.
    is_calm: bool,
    /// Control's answers to the lines of `asked`, without `ok`.
    answers: Vec<String>,
    /// Control's answers to the settings of each load that has begun, without `ok`.
    setting_answers: Vec<Vec<String>>,
    /// Control's answers to `stats`: before and after the log's begin, and before and after its end.
    statistics: Vec<String>,
}

/// A load that has begun.
pub struct Run<'e> {
    pub plan: &'e PlannedLoad,
    pub load: &'e Load,
    pub window_ns: (u64, u64),
    /// Control's answers to the load's settings, without `ok`.
    pub setting_answers: &'e [String],
}

impl Experiment {
    /// `hosts`: the number of clients.
    pub fn new(options: ExperimentOptions, hosts: usize, control: NeapControl) -> Self {
        let (loads, windows_ns, answers, setting_answers, statistics) = Default::default();
        let set_up_end_ns = options.set_up_ns_max;
        let (answer, stage, cores, is_calm) = (None, Stage::Unused, 0, true);
        let mut experiment = Self {
            options,
            loads,
            hosts,
            control,
            answer,
            stage,
            set_up_end_ns,
            cores,
            windows_ns,
            is_calm,
            answers,
            setting_answers,
            statistics,
        };
        experiment.begin_load(0);
        experiment
    }

    /// Begins the next load of the plan, if there is one.
    fn begin_load(&mut self, now_ns: u64) {
        if let Some(plan) = self.options.loads.get(self.loads.len()) {
            self.loads.push(Load::new(plan.load.clone(), self.hosts));
            self.windows_ns.push((0, 0));
            self.setting_answers.push(Vec::new());
            self.set_up_end_ns = now_ns.saturating_add(self.options.set_up_ns_max);
            self.stage = Stage::LinkDown;
        }
    }

    /// The number of the load that is under way, from 0.
    pub fn place(&self) -> usize {
        self.loads.len().saturating_sub(1)
    }

    /// The plan of the load that is under way.
    fn plan(&self) -> Option<&PlannedLoad> {
        self.options.loads.get(self.place())
    }

    /// ` of load 2 (name)` in a sequence.
    pub fn of_load(&self) -> String {
        let name = self.plan().filter(|_| self.options.is_sequence).map(|plan| &plan.name);
        name.map_or(String::new(), |name| format!(" of load {} ({name})", self.place()))
    }

    fn named(&self, why: String) -> String {
        self.of_load().strip_prefix(" of ").map_or_else(|| why.clone(), |load| format!("{load}: {why}"))
    }

    pub fn is_sequence(&self) -> bool {
        self.options.is_sequence
    }

    pub fn phase(&self) -> Phase {
        self.stage.phase()
    }

    /// True if the run has work that is not finished.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, Stage::Unused | Stage::Finished)
    }

    /// The loads that have begun, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let parts = self.options.loads.iter().zip(&self.loads).zip(&self.windows_ns).zip(&self.setting_answers);
        parts.map(|(((plan, load), &window_ns), setting_answers)| Run { plan, load, window_ns, setting_answers })
    }

    /// From and to, of the load that is under way; 0 before its window begins.
    pub fn window_ns(&self) -> (u64, u64) {
        self.windows_ns.last().copied().unwrap_or_default()
    }

    /// The beginning of the window, if it has begun.
    pub fn window_from_ns(&self) -> Option<u64> {
        Some(self.window_ns().0).filter(|_| self.phase() >= Phase::Window)
    }

    /// Control's answers to the lines of `--ask`, without `ok`.
    pub fn answers(&self) -> &[String] {
        &self.answers
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
        self.loads.last_mut().map_or(Ok(()), |load| load.end_connection(index, at_once, now_ns, hosts))
    }

    /// The time at which the phase or the stage changes, if it is known.
    pub fn change_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::WarmUp { end_ns } | Stage::BeforeWindow { end_ns } | Stage::Window { end_ns } => Some(end_ns),
            Stage::QuietBefore { end_ns } => Some(end_ns.min(self.set_up_end_ns)),
            Stage::QuietAfter { end_ns } | Stage::Reopening { end_ns } | Stage::Settling { end_ns } => Some(end_ns),
            Stage::Recovering { end_ns } | Stage::RecoveryDrain { end_ns } => Some(end_ns),
            Stage::Closing { end_ns } | Stage::Closed { end_ns } => Some(end_ns),
            // The next incident, an answer to a command, or the link changes this.
            Stage::Draining { from_ns, .. } if !self.is_calm => Some(from_ns + CALM_NS_MAX),
            Stage::Draining { from_ns, .. } if self.loads.last().is_some_and(Load::is_drained) => Some(from_ns + SHORTEST_PHASE_NS),
            Stage::Draining { end_ns, .. } => Some(end_ns),
            _ if self.phase() == Phase::SetUp && self.is_under_way() => Some(self.set_up_end_ns),
            _ => None,
        }
    }

    /// The next time at which `act` has work.
    pub fn next_ns(&mut self) -> Option<u64> {
        let load_ns = self.loads.last_mut().and_then(Load::next_ns);
        load_ns.into_iter().chain(self.control.next_ns()).chain(self.change_ns()).min()
    }

    /// A host's stack has worked.
    pub fn service(&mut self, now_ns: u64, host: usize, hosts: &mut [Host]) -> Result<(), String> {
        self.service_host(now_ns, host, hosts).map_err(|why| self.named(why))
    }

    fn service_host(&mut self, now_ns: u64, host: usize, hosts: &mut [Host]) -> Result<(), String> {
        if let Some(load) = self.loads.last_mut() {
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
        self.perform(now_ns, hosts, link_is_up).map_err(|why| self.named(why))
    }

    fn perform(&mut self, now_ns: u64, hosts: &mut [Host], link_is_up: bool) -> Result<(), String> {
        if self.loads.is_empty() {
            return Ok(());
        }
        if self.control.next_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.service_host(now_ns, CONTROL_HOST, hosts)?;
        }
        // Before the requests of this moment, so that the first request of the window is measured.
        while let Some(next) = self.next_stage(now_ns, hosts, link_is_up)? {
            self.stage = next;
        }
        if self.phase() == Phase::SetUp && now_ns >= self.set_up_end_ns {
            let seconds = self.options.set_up_ns_max as f64 / 1e9;
            return Err(format!("{} within {seconds} s of virtual time", self.missing()));
        }
        self.loads.last_mut().map_or(Ok(()), |load| load.act(now_ns, hosts))
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
        let plans = &self.options.loads;
        let stored = self.loads.len().checked_sub(2).is_some_and(|before| plans[before + 1].stores_same_as(&plans[before]));
        let drain_ns_max = self.plan().map_or(0, |plan| plan.drain_ns_max);
        let Some(load) = self.loads.last_mut() else { return Ok(None) };
        if !self.is_calm {
            if let Stage::Draining { from_ns, end_ns } = &mut self.stage {
                if now_ns >= *from_ns + CALM_NS_MAX {
                    return Err(format!("{} s after the window the link is down, or faults go on", CALM_NS_MAX / 1_000_000_000));
                }
                *end_ns = now_ns + drain_ns_max;
                return Ok(None);
            }
        }
        Ok(match self.stage {
            Stage::LinkDown if link_is_up => {
                load.connect(now_ns);
                Some(Stage::Connecting)
            }
            Stage::Connecting if load.is_connected() => {
                load.begin_preload(stored);
                Some(Stage::Preloading)
            }
            Stage::Preloading if load.is_preloaded() => self.make_setting(0, now_ns, hosts)?,
            Stage::Setting(number) => match take_line(&mut self.answer) {
                Some(answer) => {
                    if let Some(answers) = self.setting_answers.last_mut() {
                        answers.push(answer);
                    }
                    self.make_setting(number + 1, now_ns, hosts)?
                }
                None => None,
            },
            Stage::Asking(number) => match take_line(&mut self.answer) {
                Some(answer) => {
                    self.answers.push(answer);
                    self.ask(number + 1, now_ns, hosts)?
                }
                None => None,
            },
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
                if self.has_log() && self.options.recovery.is_none() {
                    self.control.ask("start", now_ns, &mut hosts[CONTROL_HOST])?;
                    Some(Stage::StartingLog)
                } else {
                    Some(self.open_window(now_ns))
                }
            }
            Stage::StartingLog if take_line(&mut self.answer).is_some() => Some(Stage::BeforeWindow { end_ns: now_ns + WINDOW_LEAD_NS }),
            Stage::BeforeWindow { end_ns } if now_ns >= end_ns => Some(self.open_window(now_ns)),
            Stage::Window { end_ns } if now_ns >= end_ns => Some(Stage::Draining { from_ns: now_ns, end_ns: now_ns + drain_ns_max }),
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
            Stage::Recovering { end_ns } if now_ns >= end_ns => Some(Stage::RecoveryDrain { end_ns: now_ns + drain_ns_max }),
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
            Stage::Closing { .. } if load.close(now_ns, hosts) => Some(Stage::Closed { end_ns: now_ns + QUIET_NS }),
            Stage::Closing { end_ns } if now_ns >= end_ns => {
                return Err(format!("the guest did not close all connections within {} s of virtual time", CLOSING_NS_MAX / 1_000_000_000));
            }
            Stage::Closed { end_ns } if now_ns >= end_ns => {
                hosts.iter_mut().for_each(Host::forget_closed);
                load.release();
                self.begin_load(now_ns);
                Some(self.stage)
            }
            _ => None,
        })
    }

    fn make_setting(&mut self, place: usize, now_ns: u64, hosts: &mut [Host]) -> Result<Option<Stage>, String> {
        if let Some(line) = self.plan().and_then(|plan| plan.settings.get(place)).cloned() {
            self.control.ask(&line, now_ns, &mut hosts[CONTROL_HOST])?;
            return Ok(Some(Stage::Setting(place)));
        }
        self.ask(if self.place() == 0 { 0 } else { self.options.asked.len() }, now_ns, hosts)
    }

    /// Asks the line with this number, or goes on after the last one.
    fn ask(&mut self, number: usize, now_ns: u64, hosts: &mut [Host]) -> Result<Option<Stage>, String> {
        if let Some(line) = self.options.asked.get(number) {
            self.control.ask(line, now_ns, &mut hosts[CONTROL_HOST])?;
            return Ok(Some(Stage::Asking(number)));
        }
        if self.options.recovery.is_some() {
            return Ok(Some(Stage::QuietBefore { end_ns: now_ns + QUIET_NS }));
        }
        self.prepare_log(now_ns, hosts).map(Some)
    }

    fn has_log(&self) -> bool {
        self.plan().is_some_and(|plan| plan.log.is_some())
    }

    fn prepare_log(&mut self, now_ns: u64, hosts: &mut [Host]) -> Result<Stage, String> {
        if self.has_log() {
            self.control.ask("status", now_ns, &mut hosts[CONTROL_HOST])?;
            return Ok(Stage::CountingCores);
        }
        self.warm_up(now_ns)
    }

    fn stop_log(&mut self, now_ns: u64, hosts: &mut [Host]) -> Result<Stage, String> {
        if !self.has_log() {
            return Ok(self.end_load(now_ns));
        }
        self.control.ask("stop", now_ns, &mut hosts[CONTROL_HOST])?;
        Ok(Stage::StoppingLog)
    }

    fn end_load(&self, now_ns: u64) -> Stage {
        if self.loads.len() < self.options.loads.len() {
            Stage::Closing { end_ns: now_ns + CLOSING_NS_MAX }
        } else {
            Stage::Finished
        }
    }

    fn warm_up(&mut self, now_ns: u64) -> Result<Stage, String> {
        if let Some(load) = self.loads.last_mut() {
            load.begin_requests(now_ns)?;
        }
        let warm_up_ns = self.plan().map_or(0, |plan| plan.warm_up_ns);
        Ok(Stage::WarmUp { end_ns: now_ns + warm_up_ns.max(SHORTEST_PHASE_NS) })
    }

    fn open_window(&mut self, now_ns: u64) -> Stage {
        let length_ns = self.plan().map_or(SHORTEST_PHASE_NS, |plan| plan.window_ns);
        let end_ns = now_ns + length_ns;
        if let (Some(load), Some(window_ns)) = (self.loads.last_mut(), self.windows_ns.last_mut()) {
            load.begin_window(now_ns, length_ns);
            *window_ns = (now_ns, end_ns);
        }
        Stage::Window { end_ns }
    }

    fn take_log(&mut self, core: u64, now_ns: u64, hosts: &mut [Host]) -> Result<Option<Stage>, String> {
        let answer = self.answer.take();
        let folder = self.plan().and_then(|plan| plan.log.as_ref());
        let (Some(Answer::Log(log)), Some(folder)) = (answer, folder) else { return Ok(None) };
        let path = folder.join(format!("core{core}.log"));
        std::fs::write(&path, log).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        if core + 1 == self.cores {
            return Ok(Some(self.end_load(now_ns)));
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
