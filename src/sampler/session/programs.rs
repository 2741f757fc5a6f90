//! What programs in the kernel add up and time, in place of events that would be told of each time.

use std::io;

use rustc_hash::FxHashSet;

use super::{Session, explain};
use crate::sampler::attach::Attacher;
use crate::sampler::bpf::btf::Btf;
use crate::sampler::bpf::calls::{Calls, Open, Sum, Which};
use crate::sampler::bpf::waits::{Last, Times, Waits};
use crate::sampler::bpf::{Told, Whose};
use crate::sampler::events::Kind;
use crate::sampler::permissions::Wanted;
use crate::sampler::ring::Ring;
use crate::sampler::{Options, SpanType, Target, thread_state};
use sys::Error;
use sys::os;
use sys::procfs;

/// So many threads are looked up without a pause.
const AT_ONCE: usize = 256;

/// The programs of a recording.
#[derive(Default)]
pub struct Programs {
    waits: Option<Waits>,
    calls: Vec<(SpanType, Calls)>,
}

impl Programs {
    /// Those for the profile types that are wanted, if this kernel and user have them. Of cgroups and
    /// of some CPUs alone they cannot tell, nor who lets others go on.
    pub fn load(options: &Options) -> Programs {
        let whose = match options.target {
            Target::Cgroup(_) => return Programs::default(),
            _ if options.cpus.is_some() => return Programs::default(),
            Target::Everything => Whose::Everybodys,
            _ if options.inherit => Whose::Theirs,
            _ => Whose::TheirsAlone,
        };
        if !options.switches && options.spans.is_empty() {
            return Programs::default();
        }
        let Ok(kernel) = Btf::of_kernel() else { return Programs::default() };
        let load = |of: &SpanType| {
            let which = match of {
                SpanType::Lock { holders: false } => Which::Waits,
                SpanType::Syscalls => Which::All,
                SpanType::Lock { holders: true } | SpanType::Io => return None,
            };
            Calls::load(&kernel, which, whose).ok().map(|calls| (*of, calls))
        };
        Programs {
            waits: options.switches.then(|| Waits::load(&kernel, whose).ok()).flatten(),
            calls: options.spans.iter().filter_map(load).collect(),
        }
    }

    /// What they tell.
    pub fn told(&self) -> Told {
        let has = |of: SpanType| self.calls.iter().any(|(is, _)| *is == of);
        Told {
            wall: self.waits.is_some(),
            lock: has(SpanType::Lock { holders: false }),
            syscalls: has(SpanType::Syscalls),
        }
    }

    /// Begins with the threads of the target. `command`: one that has not begun yet.
    ///
    /// Errors: one line that says what is in the way.
    pub fn begin(
        &mut self,
        attacher: &Attacher,
        rings: &[Ring],
        (options, pids): (&Options, &[i32]),
        command: Option<i32>,
    ) -> Result<(), Error> {
        if self.waits.is_none() && self.calls.is_empty() {
            return Ok(());
        }
        let refused = |e| Error::failed(explain(&e, Wanted::WholeMachine));
        self.connect(attacher, rings).map_err(refused)?;
        let mut known = FxHashSet::default();
        self.insert(options, pids, command, &mut known);
        if let Some(waits) = &mut self.waits {
            waits.attach().map_err(refused)?;
        }
        for (_, calls) in &mut self.calls {
            calls.attach().map_err(refused)?;
        }
        // Those that were born since; to ask about all again would take longer than the rings last.
        self.insert(options, pids, None, &mut known);
        Ok(())
    }

    /// Lets the programs write to the events of each CPU.
    ///
    /// # Errors
    ///
    /// They are not for programs to write to.
    pub fn connect(&self, attacher: &Attacher, rings: &[Ring]) -> io::Result<()> {
        let of = |kind| attacher.events.iter().position(|e| e.kind == kind);
        if let (Some(waits), Some(told), Some(ends)) =
            (&self.waits, of(Kind::Waited), of(Kind::Ended))
        {
            let (told, ends) = (attacher.descriptors(told), attacher.descriptors(ends));
            for ((ring, told), ends) in rings.iter().zip(told).zip(ends) {
                waits.connect(ring.cpu(), told, ends)?;
            }
        }
        for (of, calls) in &self.calls {
            let event = attacher.events.iter().position(|e| e.name == of.told_event());
            let told = event.map_or_else(Vec::new, |event| attacher.descriptors(event));
            for (ring, told) in rings.iter().zip(told) {
                calls.connect(ring.cpu(), told)?;
            }
        }
        Ok(())
    }

    /// Adds the threads of the target that are not `known` yet. What there is no room for is counted
    /// by the programs.
    fn insert(
        &self,
        options: &Options,
        pids: &[i32],
        command: Option<i32>,
        known: &mut FxHashSet<i32>,
    ) {
        let mut threads = options.target.threads(pids);
        threads.extend(command.map(|pid| (pid, pid)));
        threads.retain(|&(_, tid)| known.insert(tid));
        for (i, (pid, tid)) in threads.into_iter().enumerate() {
            if i % AT_ONCE == AT_ONCE - 1 {
                os::pause_briefly();
            }
            let Some(stat) = procfs::stat(tid) else { continue };
            let state = match stat.state {
                // Or running.
                'R' => None,
                'Z' | 'X' => continue,
                letter => Some(thread_state::of_letter(letter)),
            };
            let awaited = command.is_some();
            if let Some(waits) = &self.waits {
                let _ = waits.insert((pid, tid), os::monotonic_nanos(), state, awaited);
            }
            for (_, calls) in &self.calls {
                let _ = calls.insert(tid, awaited);
            }
        }
    }

    /// Ends, and says what was not told.
    fn end(&mut self) -> Vec<String> {
        let mut losses = Vec::new();
        if let Some(waits) = &mut self.waits {
            waits.detach();
            losses.push(("wall time", waits.losses()));
        }
        for (of, calls) in &mut self.calls {
            calls.detach();
            losses.push((of.name(), calls.losses()));
        }
        let mut notes = Vec::new();
        for (what, (lost, largest)) in losses {
            if largest > 0 {
                let (which, exact) = match what {
                    "wall time" => ("waits", "the time of each thread in each state"),
                    "system calls" => ("calls", "the number and time of each thread's calls"),
                    _ => ("waits", "the number and time of each thread's waits for a lock"),
                };
                notes.push(format!(
                    "{what}: there were so many {which} that of those shorter than {} us only some \
                     were sampled, and are scaled to {exact}",
                    largest.div_ceil(1000)
                ));
            }
            if lost > 0 {
                notes.push(format!(
                    "{what}: {lost} threads are missing: there were too many at once; record \
                     fewer processes"
                ));
            }
        }
        notes
    }
}

impl Session {
    /// What programs in the kernel tell.
    pub fn told(&self) -> Told {
        self.programs.told()
    }

    /// It is told where the time of threads goes, one way or the other.
    pub fn tells_wall_time(&self) -> bool {
        self.told().wall || self.switch_event().is_some()
    }

    /// After [`Session::stop`]: the time of the threads that have not ended, if it is added up in
    /// the kernel, and what they did last.
    pub fn wall_times(&self) -> Vec<(Times, Last)> {
        self.programs.waits.as_ref().map_or_else(Vec::new, Waits::threads)
    }

    /// After [`Session::stop`]: the calls that are not over and the sums of those that are, of the
    /// profile types that are timed in the kernel.
    pub fn calls(&self) -> Vec<(SpanType, Vec<Open>, Vec<Sum>)> {
        let calls = self.programs.calls.iter();
        calls.map(|(of, calls)| (*of, calls.open(), calls.sums())).collect()
    }

    pub(super) fn end_of_programs(&mut self) {
        let notes = self.programs.end();
        self.attacher.notes.extend(notes);
    }
}
