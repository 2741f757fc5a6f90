//! Facts that are more than a number or a name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::json::finite;

/// What the kernel refused to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// A process of this user, user code only.
    OwnProcess,
    /// The process with this PID.
    OtherProcess(u32),
    /// Everything on the machine, or on some CPUs.
    WholeMachine,
    /// Kernel code.
    Kernel,
    /// The tracepoint `SYSTEM:NAME`.
    Tracepoint(String),
    /// The description of the tracepoint `SYSTEM:NAME` in tracefs, which is needed to open it.
    Tracefs(String),
    /// The probe of this name.
    Probe(String),
    /// The cgroup at this path.
    Cgroup(String),
    /// A ring buffer of this size in bytes on every CPU: no target, and the reason names it.
    Ring(u64),
}

impl Wanted {
    /// Its words after the verb, with a blank before them.
    pub(crate) fn after_verb(&self) -> String {
        match self {
            Wanted::OwnProcess => " this process".to_owned(),
            Wanted::OtherProcess(pid) => format!(" process {pid}"),
            Wanted::WholeMachine => " the whole machine".to_owned(),
            Wanted::Kernel => " kernel code".to_owned(),
            Wanted::Tracepoint(name) | Wanted::Tracefs(name) => format!(" the tracepoint {name}"),
            Wanted::Probe(name) => format!(" the probe {name}"),
            Wanted::Cgroup(path) => format!(" the cgroup {path}"),
            Wanted::Ring(_) => String::new(),
        }
    }
}

/// The target of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Everything that runs.
    Machine,
    /// Processes, threads, a cgroup or a command.
    Target,
}

impl Scope {
    /// What uses CPU time.
    pub(crate) fn user_of_time(self) -> &'static str {
        match self {
            Scope::Machine => "the CPUs",
            Scope::Target => "the target",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scope::Machine => "machine",
            Scope::Target => "target",
        })
    }
}

/// The restriction of samples to a part of the target's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampledPlace {
    /// None.
    Everywhere,
    /// To some CPUs.
    SomeCpus,
    /// To kernel code.
    Kernel,
    /// To user code.
    User,
}

impl fmt::Display for SampledPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SampledPlace::Everywhere => "",
            SampledPlace::SomeCpus => " on these CPUs",
            SampledPlace::Kernel => " in the kernel",
            SampledPlace::User => " outside the kernel",
        })
    }
}

/// CPU time and the part of it that is in samples, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuCoverage {
    /// Time in samples.
    pub sampled: u64,
    /// Time that was used.
    pub used: u64,
}

impl CpuCoverage {
    /// The sampled share in percent.
    pub fn percent(&self) -> f64 {
        (100.0 * self.sampled as f64 / self.used.max(1) as f64).min(100.0)
    }

    /// True if the difference is more than chance, with a sample each `period` ns: four times the
    /// standard deviation.
    pub(crate) fn is_certain(&self, period: u64) -> bool {
        let due = (self.used / period.max(1)) as f64;
        let missing = (self.used.saturating_sub(self.sampled) / period.max(1)) as f64;
        missing > 4.0 * due.sqrt()
    }
}

/// A remedy against the loss of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossRemedy {
    /// To record fewer processes, as each event is recorded.
    FewerProcesses,
    /// A longer period.
    LongerPeriod,
    /// A period, where each event is recorded.
    AnyPeriod,
    /// A lower rate.
    LowerRate,
    /// A lower rate or a longer period.
    LowerRateOrLongerPeriod,
    /// Smaller copies of stacks, or none.
    SmallerCopies,
    /// To run prof as root.
    Root,
    /// A longer interval between allocations.
    LongerHeapInterval,
}

impl fmt::Display for LossRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LossRemedy::FewerProcesses => "each event is recorded: record fewer processes",
            LossRemedy::LongerPeriod => "raise -c",
            LossRemedy::AnyPeriod => "sample every Nth event only with -c N",
            LossRemedy::LowerRate => "lower -F",
            LossRemedy::LowerRateOrLongerPeriod => "lower -F or raise -c",
            LossRemedy::SmallerCopies => "use -g fp or a smaller -g dwarf,BYTES",
            LossRemedy::Root => "run prof as root, which gives it priority over other processes",
            LossRemedy::LongerHeapInterval => "raise --heap-interval",
        })
    }
}

/// What installs packages on a distribution: a peer says which it is, and never what to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageManager {
    /// Of Debian and Ubuntu.
    Apt,
    /// Of Fedora and Red Hat.
    Dnf,
    /// Of SUSE.
    Zypper,
}

impl PackageManager {
    /// The command that installs the debug symbols of the C library.
    pub fn debug_symbols(self) -> &'static str {
        match self {
            PackageManager::Apt => "apt-get install libc6-dbg",
            PackageManager::Dnf => "dnf debuginfo-install glibc",
            PackageManager::Zypper => "zypper install glibc-debuginfo",
        }
    }
}

/// The reason why a process was not checked for leaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UncheckedLeaks {
    /// It still ran when the recording ended.
    Running,
    /// It ended without running its exit handlers.
    Ended,
    /// The check failed; the reason.
    Failed(String),
}

impl fmt::Display for UncheckedLeaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UncheckedLeaks::Running => f.write_str("still ran at the end"),
            UncheckedLeaks::Ended => {
                f.write_str("ended without exit handlers (killed, _exit, exec) or before the check")
            }
            UncheckedLeaks::Failed(why) => write!(f, "could not be checked on exit, as {why}"),
        }
    }
}

/// An amount of memory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of objects.
    #[serde(with = "finite")]
    pub objects: f64,
    /// Their size in bytes.
    #[serde(with = "finite")]
    pub bytes: f64,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Amount { objects, bytes } = *self;
        let objects = objects.round();
        let noun = if objects == 1.0 { "object" } else { "objects" };
        match bytes / f64::from(1 << 20) {
            _ if bytes.round() == 1.0 => write!(f, "1 byte in {objects} {noun}"),
            mib if mib < 0.1 => write!(f, "{bytes:.0} bytes in {objects} {noun}"),
            mib => write!(f, "{mib:.1} MiB in {objects} {noun}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_at_most_all() {
        let percent = |sampled, used| CpuCoverage { sampled, used }.percent();
        assert_eq!(percent(50, 200), 25.0);
        assert_eq!(percent(201, 200), 100.0);
        assert_eq!(percent(0, 0), 0.0);
    }

    #[test]
    fn amounts_have_the_unit_of_their_size() {
        assert_eq!(Amount { objects: 1.0, bytes: 64.0 }.to_string(), "64 bytes in 1 object");
        let large = Amount { objects: 2.0, bytes: 1048576.0 };
        assert_eq!(large.to_string(), "1.0 MiB in 2 objects");
    }
}
