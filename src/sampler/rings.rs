//! How large the rings are: one a CPU, and larger ones where they turn out to be used.

use std::os::fd::RawFd;

use perf_event::Counter;

use super::attach::Attacher;
use super::attr::{self, Trigger};
use super::events::Kind;
use super::grow::Growing;
use super::permissions::{Wanted, explain};
use super::ring::{self, Ring};
use super::{Error, EventSpec, Options, Rate, Stacks};

/// Samples that a ring should hold: a quarter of a second at 999 Hz, and
/// what as long takes at lower rates.
const SAMPLES: usize = 256;

/// The largest ring and the smallest that is asked for, in bytes; smaller ones down to
/// [`ring::LEAST`] are made do with. Records of new processes come in bursts.
const MAX_RING: usize = 16 << 20;
const MIN_RING: usize = 2 << 20;

/// What a ring begins with that can be replaced by a larger one, in bytes.
const FIRST_RING: usize = 4 << 20;

/// It is replaced when this part of it is used at once, which is also when prof wakes up: at
/// 999 Hz and with the longest copies of stacks, by a target that runs 4 % of the time there.
const WIDEN_AT: u64 = 8;

/// All rings together, unless that leaves less than [`MIN_RING`] for each.
const MAX_RINGS: usize = 256 << 20;

/// Bytes of a sample without the copy of its stack: registers, call chains.
const SAMPLE: usize = 1024;

/// The rings of a session.
pub struct Rings {
    /// One a CPU, in their order, then those that were replaced: they may get a last record.
    pub all: Vec<Ring>,
    /// Bytes of a ring, when those of busy CPUs are still to be replaced by such.
    wider: Option<usize>,
    growing: Option<Growing>,
}

impl Rings {
    /// One ring a CPU; smaller ones where the user may not lock so much memory, which is noted.
    ///
    /// Errors: one line that says what is in the way.
    pub fn open(cpus: &[u32], options: &Options, attacher: &mut Attacher) -> Result<Rings, Error> {
        let pace = pace(options, attacher);
        let wanted = ring_size(options.stacks, pace, attacher.events.len(), cpus.len());
        // A period that the kernel chooses begins with a burst.
        let steady = attacher.triggers.iter().all(|t| matches!(t, Trigger::Period(_)));
        let slow = steady && matches!(pace, Pace::Slow(_));
        if attacher.is_cpu_wide() && slow && wanted > FIRST_RING {
            let mark = FIRST_RING / WIDEN_AT as usize;
            if let Ok(all) = cpus.iter().map(|&cpu| open_ring(cpu, FIRST_RING, mark)).collect() {
                return Ok(Rings { all, wider: Some(wanted), growing: None });
            }
        }
        let all = open_rings(cpus, pace, wanted, attacher)?;
        Ok(Rings { all, wider: None, growing: None })
    }

    /// Replaces rings that turn out to be used by larger ones, one at a time and without waiting:
    /// what was begun is gone on with by a later call.
    ///
    /// Memory for the kernel to write to is cleared and mapped page by page, so it is only had
    /// for CPUs that the target runs on.
    pub fn widen(&mut self, attacher: &mut Attacher) {
        if let Some(growing) = self.growing.take_if(|g| g.is_over()) {
            self.go_on(growing, attacher);
        }
        let (Some(size), None) = (self.wider, &self.growing) else { return };
        let small = |ring: &Ring| {
            ring.size() < size as u64 && ring.most_waiting() >= ring.size() / WIDEN_AT
        };
        let Some(at) = (0..attacher.cpus()).find(|&at| small(&self.all[at])) else { return };
        let cpu = self.all[at].cpu();
        let started = ring_owner(cpu, watermark(Pace::Slow(999), size, size))
            .and_then(|owner| Growing::start(at, owner, cpu, size));
        self.keep(started.map(Some), attacher);
    }

    fn go_on(&mut self, growing: Growing, attacher: &mut Attacher) {
        let next = match growing {
            Growing::Mapping(at, mapping) => mapping.ring().and_then(|ring| {
                let next = Growing::redirect(at, attacher.events_of_cpu(at)?, &ring)?;
                // It is read before anything is written to it.
                self.all.push(ring);
                Ok(Some(next))
            }),
            Growing::Redirecting(at, redirecting) => {
                // Some of the events may use it all the same, so it stays.
                let last = self.all.len() - 1;
                redirecting.end().map(|()| {
                    self.all.swap(at, last);
                    None
                })
            }
        };
        self.keep(next, attacher);
    }

    /// Goes on with this, or never tries again.
    fn keep(&mut self, next: std::io::Result<Option<Growing>>, attacher: &mut Attacher) {
        match next {
            Ok(next) => self.growing = next,
            Err(_) => {
                let wanted = self.wider.take().unwrap_or(FIRST_RING);
                attacher.notes.push(small_rings(FIRST_RING, wanted));
            }
        }
    }

    /// Becomes readable when [`Rings::widen`] has something to go on with.
    pub fn growing_fd(&self) -> Option<RawFd> {
        self.growing.as_ref().map(Growing::fd)
    }

    /// Waits for what was begun, so that no event changes its ring any more.
    pub fn settle(&mut self, attacher: &mut Attacher) {
        self.wider = None;
        match self.growing.take() {
            // It is not needed any more.
            Some(Growing::Mapping(..)) | None => {}
            Some(growing) => self.go_on(growing, attacher),
        }
    }
}

/// How often samples come at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pace {
    /// So many times a second, at most 999.
    Slow(u64),
    /// More often.
    Fast,
    /// Nobody knows: each time that something happens.
    Unknown,
}

fn pace(options: &Options, attacher: &Attacher) -> Pace {
    let slow = |hz| if hz <= 999 { Pace::Slow(hz) } else { Pace::Fast };
    let of = |(event, trigger): (&EventSpec, &Trigger)| match (trigger, options.rate) {
        // In bursts until the kernel has found a period, however low the rate is.
        (Trigger::Frequency(hz), _) => slow((*hz).max(999)),
        (Trigger::Period(_), _) if event.kind != Kind::Clock => Pace::Unknown,
        (Trigger::Period(_), Rate::Frequency(hz)) if hz <= 999 => Pace::Slow(hz),
        (Trigger::Period(period), _) => slow(1_000_000_000u64.div_ceil(*period)),
    };
    attacher.events.iter().zip(&attacher.triggers).map(of).max().unwrap_or(Pace::Slow(999))
}

/// Bytes of the largest ring that is asked for on a machine with so many CPUs.
pub fn largest_ring(cpus: usize) -> usize {
    let share = MAX_RINGS / cpus.max(1).next_power_of_two();
    share.clamp(MIN_RING, MAX_RING)
}

fn ring_size(stacks: Stacks, pace: Pace, events: usize, cpus: usize) -> usize {
    let most = largest_ring(cpus);
    let dump = match stacks {
        Stacks::Auto { dump } | Stacks::Dwarf { dump } => dump.min(attr::MAX_DUMP) as usize,
        Stacks::FramePointer | Stacks::None => 0,
    };
    let samples = match pace {
        Pace::Slow(hz) => (SAMPLES * hz as usize).div_ceil(999),
        Pace::Fast => SAMPLES,
        Pace::Unknown => return most,
    };
    let size = samples * dump.max(SAMPLE) * events;
    size.next_power_of_two().clamp(MIN_RING, most)
}

/// Bytes at which prof is woken up: that costs as much as many samples, but it must not come too
/// late.
fn watermark(pace: Pace, size: usize, wanted: usize) -> usize {
    match pace {
        Pace::Slow(_) if size == wanted => size / 4 * 3,
        Pace::Slow(_) => size / 2,
        _ => size / 4,
    }
}

/// Rings of the size that is wanted, or of the largest below that is to be had.
fn open_rings(
    cpus: &[u32],
    pace: Pace,
    wanted: usize,
    attacher: &mut Attacher,
) -> Result<Vec<Ring>, Error> {
    let mut size = wanted;
    loop {
        let mark = watermark(pace, size, wanted);
        match cpus.iter().map(|&cpu| open_ring(cpu, size, mark)).collect() {
            Ok(rings) => {
                if size < wanted {
                    attacher.notes.push(small_rings(size, wanted));
                }
                return Ok(rings);
            }
            Err((e, _)) if size > ring::LEAST && is_memory(&e) => size /= 2,
            Err((e, Wanted::Ring(_))) => {
                return Err(Error::other(explain(&e, Wanted::Ring(wanted as u64))));
            }
            Err((e, refused)) => return Err(Error::other(explain(&e, refused))),
        }
    }
}

fn open_ring(cpu: u32, size: usize, watermark: usize) -> Result<Ring, (std::io::Error, Wanted)> {
    let owner = ring_owner(cpu, watermark).map_err(|e| (e, Wanted::OwnProcess))?;
    Ring::new(owner, cpu, size).map_err(|e| (e, Wanted::Ring(size as u64)))
}

/// The event that a ring belongs to. It is this thread's: it hangs up when the thread ends.
fn ring_owner(cpu: u32, watermark: usize) -> std::io::Result<Counter> {
    attr::ring_owner(watermark as u32).observe_self().one_cpu(cpu as usize).build()
}

fn small_rings(size: usize, wanted: usize) -> String {
    format!(
        "ring buffers are {} KiB a CPU instead of {} KiB, so samples may be lost at high rates: \
         the locked-memory limit; as root: sysctl kernel.perf_event_mlock_kb={}",
        size >> 10,
        wanted >> 10,
        (wanted >> 10) + 4
    )
}

fn is_memory(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM | libc::EAGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_the_samples_and_the_machine() {
        const MIB: usize = 1 << 20;
        let dwarf = |dump| Stacks::Dwarf { dump };
        let of = |stacks, pace, cpus| ring_size(stacks, pace, 1, cpus) / MIB;
        assert_eq!(of(dwarf(16 << 10), Pace::Slow(999), 2), 4);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(999), 2), 16);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(99), 2), 2);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(499), 2), 8);
        assert_eq!(of(Stacks::FramePointer, Pace::Fast, 2), 2);
        assert_eq!(of(Stacks::FramePointer, Pace::Unknown, 2), 16);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(999), 48), 4);
        assert_eq!(of(dwarf(64 << 10), Pace::Unknown, 4096), 2);
    }
}
