// SPDX-License-Identifier: BSL-1.0
//! Log lines by level on stderr. Write errors are ignored, so that the program continues if stderr is closed. If stderr is a stream of the
//! journal, a line begins with its priority in angle brackets, which the journal removes (sd-daemon(3)).

use crate::service_manager;
use std::io::Write;

/// The priority of lines that the user requested: a notice.
const REQUESTED: u8 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    /// Prints also every register access by name, and every interrupt message.
    Debug,
}

impl Level {
    /// Returns the priority of syslog(3).
    fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warn => 4,
            Self::Info => 6,
            Self::Debug => 7,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Log {
    level: Level,
    with_priority: bool,
}

impl Log {
    pub fn new(level: Level) -> Self {
        Self { level, with_priority: service_manager::stderr_is_journal() }
    }
    pub fn error(&self, text: impl FnOnce() -> String) {
        self.line(Level::Error, "error", text);
    }
    pub fn warn(&self, text: impl FnOnce() -> String) {
        self.line(Level::Warn, "warning", text);
    }
    pub fn info(&self, text: impl FnOnce() -> String) {
        self.line(Level::Info, "info", text);
    }
    pub fn debug(&self, text: impl FnOnce() -> String) {
        self.line(Level::Debug, "debug", text);
    }
    /// Prints `text`, which the user requested, at every log level.
    pub fn always(&self, text: impl FnOnce() -> String) {
        self.write(REQUESTED, format_args!("{}", text()));
    }
    fn line(&self, level: Level, word: &str, text: impl FnOnce() -> String) {
        if level <= self.level {
            self.write(level.priority(), format_args!("{word}: {}", text()));
        }
    }
    fn write(&self, priority: u8, text: std::fmt::Arguments) {
        // One call writes the whole line, so that lines of several processes do not mix.
        let prefix = if self.with_priority { format!("<{priority}>") } else { String::new() };
        let _ = std::io::stderr().write_all(format!("{prefix}soft82599: {text}\n").as_bytes());
    }
}
