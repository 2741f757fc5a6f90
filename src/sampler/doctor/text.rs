//! The words for features, and for what the checks found.

use std::fmt;

use super::{Check, Feature, Works};
use crate::sampler::permissions::{Obstacle, Reason};

impl Feature {
    /// Its code, which never changes.
    pub fn code(self) -> &'static str {
        match self {
            Feature::OwnProcesses => "own-processes",
            Feature::KernelFrames => "kernel-frames",
            Feature::OtherProcesses => "other-processes",
            Feature::WholeMachine => "whole-machine",
            Feature::HardwareEvents => "hardware-events",
            Feature::Tracepoints => "tracepoints",
            Feature::KernelPrograms => "kernel-programs",
            Feature::DeepStacks => "deep-stacks",
            Feature::RingBuffers => "ring-buffers",
            Feature::OpenFiles => "open-files",
            Feature::KernelSymbols => "kernel-symbols",
            Feature::DebugSymbols => "debug-symbols",
        }
    }
}

/// The name in messages.
impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Feature::OtherProcesses => f.pad("others' processes"),
            other => f.pad(&other.code().replace('-', " ")),
        }
    }
}

impl fmt::Display for Works {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Works::OwnProcesses => f.write_str("prof record -p PID, -- COMMAND"),
            Works::KernelFrames => f.write_str("stacks include the kernel's part"),
            Works::OtherProcess(pid) => write!(f, "process {pid} was tried"),
            Works::AnyProcess => f.write_str("there are none now, but CAP_SYS_PTRACE is held"),
            Works::WholeMachine => f.write_str("prof record -a"),
            Works::HardwareEvents => f.write_str("cycles, instructions, cache-misses, …"),
            Works::Tracepoint(tried) => write!(f, "{tried} was tried"),
            Works::KernelPrograms => {
                f.write_str("wall time, waits for locks and system calls are timed in the kernel")
            }
            Works::DeepStacks => {
                f.write_str("up to 2 MiB of each stack are copied at 99 Hz, 256 KiB at 999")
            }
            Works::RingBuffers { mib, cpus } => {
                write!(f, "{mib} MiB on each of {cpus} CPUs can be locked in memory")
            }
            Works::OpenFiles(limit) => limit.fmt(f),
            Works::KernelSymbols => f.write_str("/proc/kallsyms has them"),
            Works::DebugSymbols => f.write_str("/usr/lib/debug has some of the system's libraries"),
        }
    }
}

impl Check {
    /// The trial and its result.
    pub fn why(&self) -> String {
        match (&self.result, self.feature) {
            (Ok(works), _) => works.to_string(),
            (Err(Obstacle { reason, .. }), Feature::DeepStacks) => {
                format!("stacks end after 64 KiB: {reason}")
            }
            (Err(Obstacle { reason: reason @ Reason::HiddenMappings { .. }, .. }), _) => {
                format!("samples are possible, but {reason}")
            }
            (Err(Obstacle { reason, .. }), _) => reason.to_string(),
        }
    }
}
