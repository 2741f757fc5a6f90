//! The sizes of the rings: each CPU has one for samples, which is enlarged when it fills, and one
//! for sideband records, which samples cannot fill.

use std::os::fd::RawFd;

use perf_event::Counter;

use super::attach::Attacher;
use super::attr::{self, Trigger};
use super::events::EventKind;
use super::permissions::{Wanted, refused};
use super::ring::{self, Ring};
use super::ring_resize::Growing;
use super::{EventSpec, Options, Rate, StackMethod};
use messages::Message;
use sys::Error;

/// Samples for which a ring has room: half a second at 999 Hz, and at lower rates as many; half as
/// long at higher rates.
const SAMPLES: usize = 512;

/// The largest and the smallest ring that is requested, in bytes; if memory is short, smaller ones
/// down to [`ring::LEAST`] are used. Records of new processes come in bursts.
const MAX_RING: usize = 16 << 20;
const MIN_RING: usize = 2 << 20;

/// Initial size in bytes of a ring that can be replaced by a larger one.
const FIRST_RING: usize = 4 << 20;

/// A ring is replaced when this part of it (1/N) is filled, which is also when prof wakes up: at
/// 999 Hz with the longest stack copies, by a target that uses 4 % of the CPU.
const WIDEN_AT: u64 = 8;

/// Limit for all rings together, unless that leaves less than [`MIN_RING`] for each.
const MAX_RINGS: usize = 256 << 20;

/// Bytes of a sample without the copy of its stack: registers, call chains.
const SAMPLE: usize = 1024;

/// Size of a sideband ring, as a part (1/N) of that for samples, within these limits. The start of
/// a program takes about 2 KiB.
const SIDEBAND_PART: usize = 16;
const MAX_SIDEBAND: usize = 2 << 20;

/// The rings of a session.
pub struct Rings {
    /// The sideband rings, one per CPU; the rings of samples, one per CPU in the same order; then
    /// the replaced ones, which may get a last record. Of records with the same time, sideband
    /// records come first.
    pub all: Vec<Ring>,
    cpus: usize,
    /// Size in bytes of the larger rings, if those of busy CPUs are still to be replaced.
    wider: Option<usize>,
    growing: Option<Growing>,
}

/// The rings to which events write, one per CPU.
#[derive(Clone, Copy)]
pub struct Outputs<'a> {
    /// For sideband records.
    pub sideband: &'a [Ring],
    /// For samples.
    pub samples: &'a [Ring],
}

impl Rings {
    /// Opens the rings of each CPU; smaller ones, with a note, if the user may not lock enough
    /// memory.
    ///
    /// # Errors
    ///
    /// One line that states the obstacle.
    pub fn open(cpus: &[u32], options: &Options, attacher: &mut Attacher) -> Result<Rings, Error> {
        let pace = pace(options, attacher);
        let wanted = ring_size(options.stacks, pace, attacher.events.len(), cpus.len());
        // A period that the kernel adapts starts with a burst.
        let steady = attacher.triggers.iter().all(|t| matches!(t, Trigger::Period(_)));
        let slow = steady && matches!(pace, Pace::Slow(_));
        let made = |all, wider| Rings { all, cpus: cpus.len(), wider, growing: None };
        if attacher.is_cpu_wide() && slow && wanted > FIRST_RING {
            let mark = FIRST_RING / WIDEN_AT as usize;
            if let Ok(all) = open_both(cpus, FIRST_RING, mark) {
                return Ok(made(all, Some(wanted)));
            }
        }
        Ok(made(open_rings(cpus, pace, wanted, attacher)?, None))
    }

    /// The rings to which events write.
    pub fn outputs(&self) -> Outputs<'_> {
        let (sideband, rest) = self.all.split_at(self.cpus);
        Outputs { sideband, samples: &rest[..self.cpus] }
    }

    /// The sideband rings.
    pub fn sideband(&mut self) -> &mut [Ring] {
        &mut self.all[..self.cpus]
    }

    /// The rings of samples, including replaced ones.
    pub fn samples(&mut self) -> &mut [Ring] {
        &mut self.all[self.cpus..]
    }

    /// Replaces rings that fill by larger ones, one at a time and without waiting: a later call
    /// continues a replacement.
    ///
    /// The kernel clears and maps the memory page by page, so only CPUs on which the target runs
    /// get a larger ring.
    pub fn widen(&mut self, attacher: &mut Attacher) {
        if let Some(growing) = self.growing.take_if(|g| g.is_over()) {
            self.go_on(growing, attacher);
        }
        let (Some(size), None) = (self.wider, &self.growing) else { return };
        let small = |ring: &Ring| {
            ring.size() < size as u64 && ring.most_waiting() >= ring.size() / WIDEN_AT
        };
        let Some(at) = self.outputs().samples.iter().position(small) else { return };
        let cpu = self.outputs().samples[at].cpu();
        let started = ring_owner(cpu, watermark(Pace::Slow(999), size, size))
            .and_then(|owner| Growing::start(at, owner, cpu, size));
        self.keep(started.map(Some), attacher);
    }

    fn go_on(&mut self, growing: Growing, attacher: &mut Attacher) {
        let next = match growing {
            Growing::Mapping(at, mapping) => mapping.ring().and_then(|ring| {
                let next = Growing::redirect(at, attacher.events_of_cpu(at)?, &ring)?;
                // The ring is read before anything is written to it.
                self.all.push(ring);
                Ok(Some(next))
            }),
            Growing::Redirecting(at, redirecting) => {
                // Some of the events may use the new ring nevertheless, so it stays.
                let last = self.all.len() - 1;
                redirecting.end().map(|()| {
                    self.all.swap(self.cpus + at, last);
                    None
                })
            }
        };
        self.keep(next, attacher);
    }

    /// Continues the replacement, or gives up for good.
    fn keep(&mut self, next: std::io::Result<Option<Growing>>, attacher: &mut Attacher) {
        match next {
            Ok(next) => self.growing = next,
            Err(_) => {
                let wanted = self.wider.take().unwrap_or(FIRST_RING);
                attacher.notes.push(small_rings(FIRST_RING, wanted));
            }
        }
    }

    /// The rings that can be polled. While events are redirected to a ring, the kernel holds its
    /// mutex for an RCU grace period (200 ms during `BPF_PROG_TEST_RUN`), and `poll` waits for the
    /// mutex. Reading the ring takes no lock.
    pub fn pollable(&self) -> &[Ring] {
        let locked = usize::from(self.is_redirecting());
        &self.all[..self.all.len() - locked]
    }

    /// True if one of the rings cannot be polled.
    pub fn is_redirecting(&self) -> bool {
        matches!(self.growing, Some(Growing::Redirecting(..)))
    }

    /// Becomes readable when [`Rings::widen`] can continue.
    pub fn growing_fd(&self) -> Option<RawFd> {
        self.growing.as_ref().map(Growing::fd)
    }

    /// Waits for a replacement in progress, so that no event changes its ring any more.
    pub fn settle(&mut self, attacher: &mut Attacher) {
        self.wider = None;
        match self.growing.take() {
            // The new ring is no longer needed.
            Some(Growing::Mapping(..)) | None => {}
            Some(growing) => self.go_on(growing, attacher),
        }
    }
}

/// The maximum rate of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pace {
    /// N per second, at most 999.
    Slow(u64),
    /// More than 999 per second.
    Fast,
    /// Unknown: one per event.
    Unknown,
}

fn pace(options: &Options, attacher: &Attacher) -> Pace {
    let slow = |hz| if hz <= 999 { Pace::Slow(hz) } else { Pace::Fast };
    let pace_of = |(event, trigger): (&EventSpec, &Trigger)| match (trigger, options.rate) {
        // In bursts until the kernel has adapted the period, however low the rate is.
        (Trigger::Frequency(hz), _) => slow((*hz).max(999)),
        (Trigger::Period(_), _) if event.kind != EventKind::Clock => Pace::Unknown,
        (Trigger::Period(_), Rate::Frequency(hz)) if hz <= 999 => Pace::Slow(hz),
        (Trigger::Period(period), _) => slow(1_000_000_000u64.div_ceil(*period)),
    };
    attacher.events.iter().zip(&attacher.triggers).map(pace_of).max().unwrap_or(Pace::Slow(999))
}

/// Size in bytes of the largest ring that is requested on a machine with `cpus` CPUs.
pub fn largest_ring(cpus: usize) -> usize {
    let share = MAX_RINGS / cpus.max(1).next_power_of_two();
    share.clamp(MIN_RING, MAX_RING)
}

fn ring_size(stacks: StackMethod, pace: Pace, events: usize, cpus: usize) -> usize {
    let most = largest_ring(cpus);
    let dump = match stacks {
        StackMethod::Auto { dump } | StackMethod::Dwarf { dump } => {
            dump.min(sys::record::MAX_DUMP) as usize
        }
        StackMethod::FramePointer | StackMethod::None => 0,
    };
    let samples = match pace {
        Pace::Slow(hz) => (SAMPLES * hz as usize).div_ceil(999),
        Pace::Fast => SAMPLES / 2,
        Pace::Unknown => return most,
    };
    let size = samples * dump.max(SAMPLE) * events;
    size.next_power_of_two().clamp(MIN_RING, most)
}

/// The watermark in bytes: a wake-up costs as much as many samples, but must not come too late.
fn watermark(pace: Pace, size: usize, wanted: usize) -> usize {
    match pace {
        Pace::Slow(_) if size >= wanted => size / 4 * 3,
        Pace::Slow(_) => size / 2,
        _ => size / 4,
    }
}

/// Opens rings of the wanted size, or of the largest one below that is available.
fn open_rings(
    cpus: &[u32],
    pace: Pace,
    wanted: usize,
    attacher: &mut Attacher,
) -> Result<Vec<Ring>, Error> {
    let mut size = wanted;
    loop {
        let mark = watermark(pace, size, wanted);
        match open_both(cpus, size, mark) {
            Ok(rings) => {
                // Half the size suffices if prof reads in time.
                if size < wanted / 2 {
                    attacher.notes.push(small_rings(size, wanted));
                }
                return Ok(rings);
            }
            Err((e, _)) if size > ring::LEAST && is_memory(&e) => size /= 2,
            Err((e, Wanted::Ring(_))) => {
                return Err(refused(&e, Wanted::Ring(wanted as u64)));
            }
            Err((e, wanted)) => return Err(refused(&e, wanted)),
        }
    }
}

/// Opens the sideband rings and those of samples, which have `size` bytes each.
fn open_both(
    cpus: &[u32],
    size: usize,
    watermark: usize,
) -> Result<Vec<Ring>, (std::io::Error, Wanted)> {
    let other = sideband_size(size);
    let sideband = cpus.iter().map(|&cpu| open_ring(cpu, other, other / 4));
    sideband.chain(cpus.iter().map(|&cpu| open_ring(cpu, size, watermark))).collect()
}

/// Size in bytes of the sideband ring for a ring of samples.
fn sideband_size(samples: usize) -> usize {
    (samples / SIDEBAND_PART).clamp(ring::LEAST, MAX_SIDEBAND)
}

fn open_ring(cpu: u32, size: usize, watermark: usize) -> Result<Ring, (std::io::Error, Wanted)> {
    let owner = ring_owner(cpu, watermark).map_err(|e| (e, Wanted::OwnProcess))?;
    Ring::new(owner, cpu, size).map_err(|e| (e, Wanted::Ring(size as u64)))
}

/// The event that owns a ring. It belongs to this thread: it hangs up when the thread exits.
fn ring_owner(cpu: u32, watermark: usize) -> std::io::Result<Counter> {
    attr::ring_owner(watermark as u32).observe_self().one_cpu(cpu as usize).build()
}

fn small_rings(size: usize, wanted: usize) -> Message {
    let mlock_kb = ((wanted + sideband_size(wanted)) >> 10) + 8;
    let [size, wanted, mlock_kb] = [size, wanted, mlock_kb].map(|n| n as u64);
    Message::SmallRings { size, wanted, mlock_kb }
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
        let dwarf = |dump| StackMethod::Dwarf { dump };
        let of = |stacks, pace, cpus| ring_size(stacks, pace, 1, cpus) / MIB;
        assert_eq!(of(dwarf(16 << 10), Pace::Slow(999), 2), 8);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(999), 2), 16);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(99), 2), 4);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(499), 2), 16);
        assert_eq!(of(StackMethod::FramePointer, Pace::Fast, 2), 2);
        assert_eq!(of(StackMethod::FramePointer, Pace::Unknown, 2), 16);
        assert_eq!(of(dwarf(64 << 10), Pace::Slow(999), 48), 4);
        assert_eq!(of(dwarf(64 << 10), Pace::Unknown, 4096), 2);
    }
}
