// SPDX-License-Identifier: BSL-1.0
//! Log lines by level on stderr. Write errors are ignored, so that the program continues if stderr is closed.

use std::io::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    /// Prints also every register access by name, and every interrupt message.
    Debug,
}

#[derive(Clone, Copy, Debug)]
pub struct Log {
    level: Level,
}

impl Log {
    pub fn new(level: Level) -> Self {
        Self { level }
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
        let _ = writeln!(std::io::stderr(), "soft82599: {}", text());
    }
    fn line(&self, level: Level, word: &str, text: impl FnOnce() -> String) {
        if level <= self.level {
            let _ = writeln!(std::io::stderr(), "soft82599: {word}: {}", text());
        }
    }
}
