// SPDX-License-Identifier: BSL-1.0
//! neap-load: from the command line through the runs to the reports.

use clap::Parser as _;
use load::neap_control::NeapControl;
use load::options::Options;
use load::report;
use load::run::{Outcomes, Run, Team};
use load::search::Search;
use load::worker::{Clock, Surroundings};
use serde_json::{json, Value};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// For replies that are still out at a run's end.
const DRAIN_NS: u64 = 2_000_000_000;
/// Beside connections: files, pollers, standard streams.
const OTHER_DESCRIPTORS: u64 = 64;
const SEARCH_PRECISION: f64 = 0.02;

fn main() -> ExitCode {
    let options = Options::parse();
    match work(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("neap-load: {why}");
            ExitCode::FAILURE
        }
    }
}

fn work(options: &Options) -> Result<(), String> {
    let load = options.load((0, 1))?;
    // A wrong file is told before anything is sent.
    let first = options.run(options.scan.and_then(|scan| scan.rates().next()))?;
    allow_descriptors(u64::from(options.connections) + u64::from(options.measure_connections))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The second Ctrl-C ends the program at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone()).map_err(|error| format!("signals: {error}"))?;
        signal_hook::flag::register(signal, stop.clone()).map_err(|error| format!("signals: {error}"))?;
    }
    let around = Surroundings {
        clock: Clock::default(),
        stop: stop.clone(),
        time_out_ns: options.time_out_ns(),
        drain_ns: DRAIN_NS,
        busy: options.busy,
    };
    let control = match &options.control {
        Some(name) => Some(NeapControl::connect(name, token(options)?.as_deref())?),
        None => None,
    };
    let team = Team::new(load, around.clone())?;
    let (open, asked) = team.connect()?;
    if open < asked {
        eprintln!("{open} of {asked} connections are open; the rest is tried again while it runs");
    }
    if !options.no_preload {
        let stored = team.preload()?;
        if !options.quiet {
            eprintln!("{stored} keys stored");
        }
    }
    let mut bench = Bench { options, team, control, around, results: Vec::new() };
    if let Some(scan) = options.scan {
        for rate in scan.rates() {
            if !stop.load(Ordering::Relaxed) {
                bench.run(&options.run(Some(rate))?)?;
            }
        }
    } else if options.search.is_some() {
        bench.search()?;
    } else {
        bench.run(&first)?;
    }
    bench.write_files()
}

fn token(options: &Options) -> Result<Option<String>, String> {
    let Some(file) = &options.control_token_file else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Some(text.trim().to_string()))
}

/// Each connection is an open file.
fn allow_descriptors(connections: u64) -> Result<(), String> {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let needed = connections + OTHER_DESCRIPTORS;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        let most = limit.maximum.unwrap_or(0).saturating_sub(OTHER_DESCRIPTORS);
        return Err(format!("{connections} connections need more open files than this user may have (ulimit -Hn); at most {most} fit"));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|error| format!("ulimit -n {needed}: {error}"))
}

struct Bench<'o> {
    options: &'o Options,
    team: Team,
    control: Option<NeapControl>,
    around: Surroundings,
    results: Vec<(Outcomes, Option<f64>, Value)>,
}

impl Bench<'_> {
    /// One run with its report.
    fn run(&mut self, run: &Run) -> Result<&Outcomes, String> {
        let asked = run.asked_rate();
        let quiet = self.options.quiet;
        if !quiet {
            eprintln!("{}", report::SECOND_HEADING);
        }
        let clock = self.control.as_mut().map(NeapControl::clock_offset).transpose()?;
        let (outcomes, started) = std::thread::scope(|scope| {
            let starter = self.control.as_mut().map(|control| start_log(scope, control, run.warm_up_ns));
            let outcomes = self.team.run(run, |second| {
                if !quiet {
                    eprintln!("{}", report::second(second));
                }
            });
            let started = starter.map(|starter| starter.join().unwrap_or_else(|_| Err("the thread that starts the log ended".into())));
            Ok::<_, String>((outcomes?, started.transpose()?))
        })?;
        // All replies are in: what the log holds from its start on are the window's requests and those of the drain.
        let stopped = self.control.as_mut().map(NeapControl::stop).transpose()?;
        let log = json!({"clock": clock, "started": started, "stopped": stopped});
        println!("{}", report::table(&outcomes, asked));
        if self.around.stop.load(Ordering::Relaxed) {
            println!("stopped before its time");
        }
        self.results.push((outcomes, asked, log));
        Ok(&self.results[self.results.len() - 1].0)
    }

    fn search(&mut self) -> Result<(), String> {
        let Some(promise) = self.options.search else { return Ok(()) };
        let mut search = Search::new(self.options.search_from, SEARCH_PRECISION);
        while let Some(rate) = search.next_rate() {
            let outcomes = self.run(&self.options.run(Some(rate))?)?;
            let judged = promise.judge(outcomes, rate);
            if self.around.stop.load(Ordering::Relaxed) {
                break;
            }
            match &judged {
                Ok(()) => println!("{rate:.0} requests/s: holds\n"),
                Err(why) => println!("{rate:.0} requests/s: does not hold: {why}\n"),
            }
            search.tried(judged.is_ok());
        }
        let below = promise.below_ns as f64 / 1000.0;
        println!("highest rate with p{} below {below} us: {:.0} requests/s", promise.percentile, search.found());
        Ok(())
    }

    fn write_files(&self) -> Result<(), String> {
        if let Some(file) = &self.options.json {
            let runs: Vec<Value> = self
                .results
                .iter()
                .map(|(outcomes, asked, log)| {
                    let mut object = report::json(outcomes, *asked);
                    object["log"] = log.clone();
                    object
                })
                .collect();
            let text = serde_json::to_string_pretty(&json!({"runs": runs})).map_err(|error| error.to_string())? + "\n";
            write_file(file, |out| out.write_all(text.as_bytes()))?;
        }
        if let Some(file) = &self.options.histogram {
            write_file(file, |mut out| self.results.iter().try_for_each(|(outcomes, _, _)| report::write_histograms(outcomes, &mut out)))?;
        }
        Ok(())
    }
}

/// Starts the log as the window begins: at once if there is no warm-up, so that no request comes before it.
fn start_log<'scope, 'control: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    control: &'control mut NeapControl,
    warm_up_ns: u64,
) -> ScopedJoinHandle<'scope, Result<String, String>> {
    let begun = if warm_up_ns == 0 { Some(control.start()) } else { None };
    scope.spawn(move || match begun {
        Some(answer) => answer,
        None => {
            std::thread::sleep(Duration::from_nanos(warm_up_ns));
            control.start()
        }
    })
}

fn write_file(file: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let result = if file == Path::new("-") { write(&mut io::stdout()) } else { File::create(file).and_then(|mut out| write(&mut out)) };
    result.map_err(|error| format!("{}: {error}", file.display()))
}
