// SPDX-License-Identifier: BSL-1.0
//! The stages of a run, and the phases that the plugin sees (experiment.rs has their course).

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
pub enum Stage {
    /// There is no load: nothing happens.
    Unused,
    LinkDown,
    Connecting,
    Preloading,
    /// The answer to the setting with this number is awaited.
    Setting(usize),
    /// The answer to the line of `--ask` with this number is awaited.
    Asking(usize),
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
    /// The connections of a load that another one follows are being closed.
    Closing {
        end_ns: u64,
    },
    /// They are closed. Until their last acknowledgements have arrived.
    Closed {
        end_ns: u64,
    },
    Finished,
}

impl Stage {
    pub fn phase(&self) -> Phase {
        match self {
            Self::Unused
            | Self::LinkDown
            | Self::Connecting
            | Self::Preloading
            | Self::Setting(_)
            | Self::Asking(_)
            | Self::QuietBefore { .. }
            | Self::StatisticsBefore
            | Self::CountingCores
            | Self::StartingEarlyLog
            | Self::StatisticsAtStart => Phase::SetUp,
            Self::WarmUp { .. } | Self::StartingLog | Self::BeforeWindow { .. } => Phase::WarmUp,
            Self::Window { .. } => Phase::Window,
            Self::Finished => Phase::Finished,
            _ => Phase::Drain,
        }
    }
}
