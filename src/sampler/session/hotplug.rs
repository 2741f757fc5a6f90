//! CPUs that go offline and come back during a recording.

use std::fs::File;

use super::Session;
use crate::sampler::{Options, Target};
use messages::Message;
use sys::procfs;

/// The CPUs that are online.
pub struct Hotplug {
    /// The recorded CPUs.
    cpus: Vec<u32>,
    /// For each recorded CPU: it was offline at the last check.
    offline: Vec<bool>,
    /// For each recorded CPU: it was offline at some time.
    left: Vec<bool>,
    /// CPUs that came online later and are not recorded.
    others: Vec<u32>,
    /// True if all online CPUs are recorded.
    all: bool,
    /// True if events of CPUs that come back can be opened again.
    returns: bool,
    /// The kernel's list of online CPUs, which is read several times per second.
    list: Option<File>,
}

impl Hotplug {
    /// For a recording of these CPUs.
    pub fn new(options: &Options, cpus: Vec<u32>) -> Hotplug {
        let not = vec![false; cpus.len()];
        Hotplug {
            cpus,
            offline: not.clone(),
            left: not,
            others: Vec::new(),
            all: options.cpus.is_none(),
            returns: !matches!(options.target, Target::Cgroup(_)),
            list: procfs::open_online_cpus(),
        }
    }

    /// Stores which CPUs are online; returns the indices of those that have come back.
    fn update(&mut self, online: &[u32]) -> Vec<usize> {
        let mut back = Vec::new();
        for (at, cpu) in self.cpus.iter().enumerate() {
            let offline = !online.contains(cpu);
            if self.offline[at] && !offline {
                back.push(at);
            }
            self.offline[at] = offline;
            self.left[at] |= offline;
        }
        if self.all {
            let new = online.iter().filter(|cpu| !self.cpus.contains(cpu));
            let new: Vec<u32> = new.filter(|cpu| !self.others.contains(cpu)).copied().collect();
            self.others.extend(new);
        }
        back
    }

    /// Notes for the user about CPUs that were not online all the time.
    pub fn notes(&self) -> Vec<Message> {
        let cpus: Vec<u32> =
            self.cpus.iter().zip(&self.left).filter(|(_, left)| **left).map(|(&c, _)| c).collect();
        let mut notes = Vec::new();
        if !cpus.is_empty() {
            notes.push(Message::CpusLeft { cpus, returns: self.returns });
        }
        if !self.others.is_empty() {
            notes.push(Message::CpusCame { cpus: self.others.clone() });
        }
        notes
    }
}

impl Session {
    /// Samples CPUs that have come back; to be called a few times per second. Events of threads are
    /// not affected by hotplug.
    pub fn follow_cpus(&mut self) {
        if !self.attacher.is_cpu_wide() || !self.counts.is_empty() {
            return;
        }
        let list = self.hotplug.list.as_ref();
        let Some(online) = list.and_then(procfs::read_online_cpus) else { return };
        for at in self.hotplug.update(&online) {
            if !self.hotplug.returns {
                continue;
            }
            match self.attacher.reopen(at, self.rings.outputs()) {
                Ok(()) => {
                    let samples = self.rings.outputs().samples;
                    let _ = self.programs.connect(&self.attacher, samples);
                }
                // The CPU is offline again.
                Err(_) => self.hotplug.offline[at] = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sampler::types::ProfileTypes;
    use crate::sampler::{Event, EventSpec, Rate, StackMethod};

    fn watched(cpus: &[u32]) -> Hotplug {
        let options = Options::new(Target::Everything, Rate::Frequency(99), StackMethod::None);
        Hotplug::new(&options, cpus.to_vec())
    }

    #[test]
    fn a_cpu_that_comes_back_is_noticed_once() {
        let mut hotplug = watched(&[0, 1, 2]);
        assert!(hotplug.update(&[0, 1, 2]).is_empty() && hotplug.notes().is_empty());
        assert!(hotplug.update(&[0, 2]).is_empty());
        assert_eq!(hotplug.update(&[0, 1, 2]), [1]);
        assert!(hotplug.update(&[0, 1, 2, 5]).is_empty());
        let left = Message::CpusLeft { cpus: vec![1], returns: true };
        assert_eq!(hotplug.notes(), [left, Message::CpusCame { cpus: vec![5] }]);
    }

    /// Mimics the kernel, which removes the events of a CPU that goes offline.
    #[test]
    fn a_cpu_that_comes_back_is_sampled_again() {
        let target = Target::Processes { pids: vec![std::process::id() as i32], tree: false };
        let options = Options {
            events: vec![EventSpec::cpu_clock()],
            ..Options::new(target, Rate::Frequency(999), StackMethod::FramePointer)
        };
        let mut session = match Session::open(&options, &mut ProfileTypes::default(), None) {
            Ok(session) if session.is_cpu_wide() => session,
            _ => return sys::testing::skip("this user may not sample CPUs"),
        };
        session.begin();
        for counter in &mut session.attacher.counters {
            counter.disable().unwrap();
        }
        session.drain(u64::MAX, |_| {});
        let samples = |session: &mut Session| {
            let mut samples = 0;
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            session.drain(u64::MAX, |event| {
                samples += u32::from(matches!(event, Event::Sample { .. }));
            });
            samples
        };
        assert_eq!(samples(&mut session), 0);
        session.hotplug.offline.fill(true);
        session.follow_cpus();
        let deadline = Instant::now() + Duration::from_secs(60);
        while samples(&mut session) == 0 {
            assert!(Instant::now() < deadline, "it is not sampled again");
        }
        session.stop();
        assert!(session.cpu_time().is_none() && session.stats().lost == 0);
    }
}
