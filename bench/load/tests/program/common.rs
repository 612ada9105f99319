// SPDX-License-Identifier: BSL-1.0
//! Starts the programs and reads their output.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A program that runs longer than this is considered hung.
const RUN_TIME_OUT: Duration = Duration::from_secs(400);

/// A child process that is killed after RUN_TIME_OUT, so that a read of its output always ends.
pub struct Watched {
    child: Arc<Mutex<Child>>,
    _end: Sender<()>,
}

impl Watched {
    pub fn new(child: Child) -> Self {
        let child = Arc::new(Mutex::new(child));
        let (end, finished) = channel();
        let watched = child.clone();
        std::thread::spawn(move || {
            if finished.recv_timeout(RUN_TIME_OUT) == Err(RecvTimeoutError::Timeout) {
                let _ = watched.lock().unwrap().kill();
            }
        });
        Self { child, _end: end }
    }

    pub fn kill(&self) {
        self.child.lock().unwrap().kill().unwrap();
    }

    /// Waits until the child has ended by itself or was killed.
    pub fn wait(&self) -> ExitStatus {
        loop {
            // A blocking wait would hold the lock, but the thread that kills the child needs it.
            if let Some(status) = self.child.lock().unwrap().try_wait().unwrap() {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn interrupt(&self) {
        let process = rustix::process::Pid::from_child(&self.child.lock().unwrap());
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    }
}

/// A server with known faults. Dropping a `Stub` ends the server.
pub struct Stub {
    child: Watched,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    pub address: String,
}

impl Stub {
    pub fn start(words: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_neap-load-stub"))
            .args(words.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("its first line").to_string();
        Self { input: child.stdin.take(), child: Watched::new(child), lines, address }
    }

    /// Ends the server. Returns its report.
    pub fn end(mut self) -> Value {
        self.input = None;
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).expect("a report")
    }

    pub fn kill(self) {
        self.child.kill();
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.input = None;
        self.child.wait();
    }
}

pub struct Load {
    child: Watched,
    json: PathBuf,
    stdout: ChildStdout,
    pub stderr: BufReader<ChildStderr>,
}

pub struct Finished {
    pub is_good: bool,
    pub table: String,
    pub stderr: String,
    /// Null if there is no JSON file.
    pub json: Value,
}

pub fn scratch_file(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // The target folder's path may contain a space, which separates arguments here. So the file is in the folder for temporary files.
    std::env::temp_dir().join(format!("neap-load-{}-{number}-{name}", std::process::id()))
}

/// Starts neap-load. `words`: arguments separated by spaces, to which the JSON file is added.
pub fn start(address: &str, words: &str) -> Load {
    let json = scratch_file("load.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_neap-load"))
        .arg(address)
        .args(words.split_whitespace())
        .arg("--json")
        .arg(&json)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), BufReader::new(child.stderr.take().unwrap()));
    Load { child: Watched::new(child), json, stdout, stderr }
}

pub fn load(address: &str, words: &str) -> Finished {
    start(address, words).end()
}

impl Load {
    pub fn interrupt(&self) {
        self.child.interrupt();
    }

    /// Reads standard error up to the line that contains this text.
    pub fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "it ended without {text:?}");
        }
    }

    pub fn end(mut self) -> Finished {
        let mut table = String::new();
        let mut stderr = String::new();
        let reader = std::thread::spawn(move || {
            self.stdout.read_to_string(&mut table).unwrap();
            table
        });
        let errors = std::thread::spawn(move || {
            self.stderr.read_to_string(&mut stderr).unwrap();
            stderr
        });
        let status = self.child.wait();
        let text = std::fs::read_to_string(&self.json).unwrap_or_default();
        let _ = std::fs::remove_file(&self.json);
        Finished {
            is_good: status.success(),
            table: reader.join().unwrap(),
            stderr: errors.join().unwrap(),
            json: serde_json::from_str(&text).unwrap_or_default(),
        }
    }
}

impl Finished {
    /// Returns a number of the JSON's first run. `path`: the JSON names from the run to the number, like `loading/intended`.
    pub fn number(&self, path: &str) -> f64 {
        self.number_of(0, path)
    }

    pub fn number_of(&self, run: usize, path: &str) -> f64 {
        let found = path.split('/').fold(&self.json["runs"][run], |value, name| &value[name]);
        found.as_f64().unwrap_or_else(|| panic!("no {path} in {}{}", self.json, self.stderr))
    }

    /// Returns the number of requests that were answered or failed. It must equal the number of intended requests.
    pub fn accounted(&self, client: &str) -> f64 {
        let requests = &self.json["runs"][0][client]["requests"];
        let all = ["outcomes", "failures"]
            .map(|kind| requests[kind].as_object().unwrap().values().map(|count| count.as_f64().unwrap()).sum::<f64>());
        all.iter().sum()
    }
}
