// SPDX-License-Identifier: BSL-1.0
//! neap-load: reads the command line, performs the runs, and writes the reports.

use clap::Parser as _;
use load::agent::{serve, Remote};
use load::limits;
use load::neap_control::NeapControl;
use load::options::{AgentOptions, Options};
use load::report;
use load::run::Outcomes;
use load::search::Search;
use load::server_log::{Phase, Schedule, ServerLog};
use load::team::Team;
use load::terminal::shown;
use load::worker::{Clock, Environment};
use serde_json::{json, Value};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

const SEARCH_PRECISION: f64 = 0.02;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let result = if words.nth(1).is_some_and(|word| word == "agent") {
        let options = AgentOptions::parse_from(std::iter::once("neap-load agent".into()).chain(words));
        serve::serve(&options.listen)
    } else {
        work(&Options::parse())
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_status(&format!("neap-load: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn print_status(line: &str) {
    let _ = writeln!(io::stderr(), "{}", shown(line));
}

fn work(options: &Options) -> Result<(), String> {
    // Wrong arguments or files are reported before anything is sent.
    let load = options.load((0, options.loaders()))?;
    let first = options.order(options.scan.and_then(|scan| scan.rates().next()))?;
    options.run_of(&first)?;
    limits::allow_descriptors(&load)?;
    for file in [&options.json, &options.histogram].into_iter().flatten() {
        write_file(file, |_| Ok(()))?;
    }
    let environment = Environment {
        clock: Clock::default(),
        stop: Arc::new(AtomicBool::new(false)),
        time_out_ns: options.time_out_ns(),
        busy: options.busy,
    };
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second Ctrl-C ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, environment.stop.clone())
            .map_err(|error| format!("signals: {error}"))?;
        signal_hook::flag::register(signal, environment.stop.clone()).map_err(|error| format!("signals: {error}"))?;
    }
    let mut log = match &options.control {
        Some(name) => Some(ServerLog::new(NeapControl::connect(name, token(options)?.as_deref())?, options.log_from)),
        None => None,
    };
    let agents = attach_agents(options, &environment)?;
    let has_keys = load.settings.protocol.has_keys();
    let mut team = Team::new(load, environment.clone(), agents)?;
    let (open, asked) = team.connect()?;
    if open < asked {
        print_status(&format!("{open} of {asked} connections are open; the rest is retried during the run"));
    }
    if has_keys && !options.no_preload {
        if let Some(log) = &mut log {
            log.begin(Phase::Preload)?;
        }
        let stored = match (team.preload(), &mut log) {
            (Ok(stored), _) => stored,
            (Err(why), None) => return Err(why),
            (Err(why), Some(log)) => {
                // A log that is on must not go on alone. The reason of the failure is the preload's.
                let _ = log.end(None);
                return Err(why);
            }
        };
        if !options.quiet {
            print_status(&format!("{stored} keys stored"));
        }
    }
    let mut bench = Bench { options, team, log, environment, results: Vec::new() };
    // The results of completed runs are written even if a later run failed.
    let done = bench.runs();
    bench.write_files()?;
    done
}

fn attach_agents(options: &Options, environment: &Environment) -> Result<Vec<Remote>, String> {
    // This program has index 0 if it generates load itself; the agents have the next indices.
    let loaders = options.loaders();
    let first = loaders - options.agents.len() as u64;
    (first..).zip(&options.agents).map(|(place, name)| Remote::attach(name, options.for_agents(), (place, loaders), environment)).collect()
}

fn token(options: &Options) -> Result<Option<String>, String> {
    let Some(file) = &options.control_token_file else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Some(text.trim().to_string()))
}

struct Bench<'o> {
    options: &'o Options,
    team: Team,
    log: Option<ServerLog>,
    environment: Environment,
    results: Vec<(Outcomes, Option<f64>, Value)>,
}

impl Bench<'_> {
    fn runs(&mut self) -> Result<(), String> {
        if let Some(scan) = self.options.scan {
            for rate in scan.rates() {
                if !self.is_stopped() {
                    self.run(Some(rate))?;
                }
            }
            Ok(())
        } else if self.options.search.is_some() {
            self.search()
        } else {
            self.run(None).map(drop)
        }
    }

    fn is_stopped(&self) -> bool {
        self.environment.stop.load(Ordering::Relaxed)
    }

    fn run(&mut self, rate: Option<f64>) -> Result<&Outcomes, String> {
        let order = self.options.order(rate)?;
        let run = self.options.run_of(&order)?;
        let measuring_rate = if self.options.measure_connections == 0 { 0.0 } else { self.options.measure_rate };
        let asked = run.asked_rate().map(|rate| rate + measuring_rate);
        let quiet = self.options.quiet;
        if !quiet {
            print_status(report::SECOND_HEADING);
        }
        let clock = self.log.as_mut().map(ServerLog::clock_offset).transpose()?;
        let Self { team, log, environment, .. } = self;
        if let Some(log) = log {
            log.prepare(run.warm_up_ns != 0)?;
        }
        let start_ns = team.next_start_ns();
        let window_ns = start_ns + run.warm_up_ns;
        let schedule = Schedule { start_ns, window_ns, drain_ns: window_ns.saturating_add(run.measured_ns) };
        let is_over = AtomicBool::new(false);
        let mut over_time = Vec::new();
        let outcomes = std::thread::scope(|scope| {
            let (environment, is_over) = (&*environment, &is_over);
            let marking = log.as_mut().map(|log| scope.spawn(move || log.follow(schedule, environment, is_over)));
            let outcomes = team.run(&run, &order, start_ns, |second| {
                over_time.push(report::second_json(second, run.warm_up_ns));
                if !quiet {
                    print_status(&report::second(second));
                }
            });
            is_over.store(true, Ordering::Relaxed);
            let marked =
                marking.map_or(Ok(()), |thread| thread.join().unwrap_or_else(|_| Err("the thread that marks the log ended".into())));
            // If the run failed, its error is reported instead of the log's error.
            outcomes.and_then(|outcomes| marked.map(|()| outcomes))
        });
        // All replies have arrived, so the server has logged all requests of the window and of the drain. The log is also stopped if the
        // run failed.
        let log = log.as_mut().map(|log| log.end(clock));
        let outcomes = outcomes?;
        let log = log.transpose()?.unwrap_or_else(|| json!({"clock": null, "started": null, "stopped": null, "marks": []}));
        let more = json!({"over_time": over_time, "log": log});
        print(&report::table(&outcomes, asked, !self.options.is_http()))?;
        if self.is_stopped() {
            print("stopped before its time")?;
        }
        self.results.push((outcomes, asked, more));
        Ok(&self.results[self.results.len() - 1].0)
    }

    fn search(&mut self) -> Result<(), String> {
        let Some(promise) = self.options.search else { return Ok(()) };
        let mut search = Search::new(self.options.search_from, SEARCH_PRECISION);
        while let Some(rate) = search.next_rate().filter(|_| !self.is_stopped()) {
            let outcomes = self.run(Some(rate))?;
            let judged = promise.judge(outcomes, rate);
            if self.is_stopped() {
                break;
            }
            match &judged {
                Ok(()) => print(&format!("{rate:.0} requests/s: holds\n"))?,
                Err(why) => print(&format!("{rate:.0} requests/s: does not hold: {why}\n"))?,
            }
            search.tried(judged.is_ok());
        }
        let below = promise.below_ns as f64 / 1000.0;
        print(&format!("highest rate with p{} below {below} us: {:.0} requests/s", promise.percentile, search.found()))
    }

    fn write_files(&self) -> Result<(), String> {
        if let Some(file) = &self.options.json {
            let runs: Vec<Value> = self
                .results
                .iter()
                .map(|(outcomes, asked, more)| {
                    let mut object = report::json(outcomes, *asked);
                    for name in ["over_time", "log"] {
                        object[name] = more[name].clone();
                    }
                    object
                })
                .collect();
            let agents: Vec<Value> = self.team.agents().iter().map(|agent| json!({"name": agent.name, "clock": agent.clock})).collect();
            let all = json!({"runs": runs, "agents": agents, "stopped_early": self.is_stopped(), "seed": self.options.seed});
            let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())? + "\n";
            write_file(file, |out| out.write_all(text.as_bytes()))?;
        }
        if let Some(file) = &self.options.histogram {
            let runs: Vec<&Outcomes> = self.results.iter().map(|(outcomes, _, _)| outcomes).collect();
            write_file(file, |mut out| report::write_histograms(&runs, &mut out))?;
        }
        Ok(())
    }
}

/// Prints a line to standard output. Fails if the line cannot be written.
fn print(text: &str) -> Result<(), String> {
    writeln!(io::stdout(), "{text}").map_err(|error| format!("standard output: {error}"))
}

fn write_file(file: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let result = if file == Path::new("-") { write(&mut io::stdout()) } else { File::create(file).and_then(|mut out| write(&mut out)) };
    result.map_err(|error| format!("{}: {error}", file.display()))
}
