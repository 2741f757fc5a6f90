use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::sampler::bpf::testing::skip_programs;
use crate::sampler::types::Selection;
use crate::sampler::{Rate, StackMethod};
use sys::procfs;
use sys::testing::skip;

/// Killed at the end of a test.
struct Busy(Child);

impl Busy {
    fn sh(script: &str) -> Busy {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Busy(command.spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(pid: i32, rate: Rate) -> Result<Session, Error> {
    let target = Target::Processes { pids: vec![pid], tree: false };
    let stacks = StackMethod::Dwarf { dump: sys::record::MAX_DUMP };
    let events = vec![EventSpec::cpu_clock()];
    let options = Options { events, ..Options::new(target, rate, stacks) };
    Session::open(&options, &mut ProfileTypes::default(), None)
}

/// A session that records a process; `None`, and the test is skipped, if there can be none.
fn opened(process: &Busy, rate: Rate) -> Option<Session> {
    open(process.pid(), rate).map_err(|why| skip(&why.to_string())).ok()
}

/// Opens a session with off-CPU time.
fn open_wall(pid: i32) -> Result<Session, Error> {
    let target = Target::Processes { pids: vec![pid], tree: false };
    let stacks = StackMethod::Auto { dump: sys::record::MAX_DUMP };
    let events = vec![EventSpec::cpu_clock()];
    let options = Options::new(target, Rate::Frequency(99), stacks);
    let settings = Selection { names: vec!["wall".to_owned()], ..Selection::default() };
    Session::open(&Options { events, ..options }, &mut ProfileTypes::new(&settings), None)
}

fn waits_for(session: &mut Session, what: &str, condition: impl Fn(&Session) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition(session) {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn filled(session: &Session) -> u64 {
    session.rings.outputs().samples.iter().map(Ring::filled).sum()
}

#[test]
fn nothing_is_sampled_before_all_is_open() {
    let busy = Busy::sh("while :; do :; done");
    let Some(mut session) = opened(&busy, Rate::Frequency(999)) else { return };
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(filled(&session), 0);
    session.begin();
    waits_for(&mut session, "samples", |session| filled(session) > 0);
}

#[test]
fn samples_of_other_processes_are_not_written() {
    let idle = Busy::sh("exec sleep 600");
    let mut session = match open(idle.pid(), Rate::Frequency(999)) {
        Ok(session) if session.attacher.filter.is_some() => session,
        Ok(_) => return skip_programs("the filter cannot be loaded"),
        Err(why) => return skip_programs(&why.to_string()),
    };
    // The process runs until it sleeps.
    waits_for(&mut session, "it sleeps", |_| {
        std::fs::read_to_string(format!("/proc/{}/comm", idle.pid())).unwrap() == "sleep\n"
            && procfs::stat(idle.pid()).unwrap().state == 'S'
    });
    session.begin();
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    assert_eq!(filled(&session), 0);
    assert!(session.loses_only_target_samples());
    session.stop();
    assert_eq!(session.stats().lost, 0);
}

/// Else all that follows would be copied.
#[test]
fn events_behind_one_that_is_kept_stay_while_the_rings_hold_little() {
    let busy = Busy::sh("while :; do :; done");
    let Some(mut session) = opened(&busy, Rate::Frequency(999)) else { return };
    session.begin();
    waits_for(&mut session, "a ring that fills", |session| {
        session.rings.outputs().samples.iter().any(|ring| ring.filled() * 4 > ring.size() * 3)
    });
    session.stop();
    let mut times = Vec::new();
    let mut drain = |session: &mut Session, delivery: Delivery| {
        let before = times.len();
        let until = session.drain_timed(u64::MAX, |time, event| {
            // Other records are not kept, do not end it, and come at any time.
            if !matches!(event, Event::Sample { .. }) {
                return Delivery::Taken;
            }
            times.push(time);
            delivery
        });
        (until, times.len() - before, times.last().copied())
    };
    let (until, count, last) = drain(&mut session, Delivery::Kept);
    assert!(session.holds_little() && count > 10 && Some(until) == last, "{count} until {until}");
    let (until, count, last) = drain(&mut session, Delivery::Kept);
    assert_eq!((count, last), (1, Some(until)));
    let (until, count, _) = drain(&mut session, Delivery::Taken);
    assert!(until == u64::MAX && count > 10 && filled(&session) == 0, "{count} until {until}");
    assert!(times.is_sorted(), "{times:?}");
}

/// The rings are not read while programs are started in sequence.
#[test]
fn samples_push_out_no_records_about_processes() {
    let busy = Busy::sh("while :; do /bin/true; sleep 0.02; done");
    let Some(mut session) = opened(&busy, Rate::Period(20_000)) else { return };
    session.begin();
    waits_for(&mut session, "a full ring", |session| {
        let full = |ring: &Ring| ring.filled() + (96 << 10) > ring.size();
        session.rings.outputs().samples.iter().any(full)
    });
    let full = os::monotonic_nanos();
    let sideband =
        |session: &Session| session.rings.outputs().sideband.iter().map(Ring::filled).sum::<u64>();
    let before = sideband(&session);
    waits_for(&mut session, "programs that start", |session| sideband(session) > before + 16_384);
    session.stop();
    let mut starts = 0;
    let mut mappings = 0;
    session.drain_timed(u64::MAX, |time, event| {
        match event {
            Event::Other(Record::Comm { exec: true, .. }) if time > full => starts += 1,
            Event::Other(Record::Mmap(_)) if time > full => mappings += 1,
            _ => {}
        }
        Delivery::Taken
    });
    let stats = session.stats();
    assert!(stats.lost > 0 && stats.lost_records == 0, "{stats:?}");
    assert!(starts > 2 && mappings >= starts, "{starts} starts, {mappings} mappings");
}

/// If prof reads late, the record of lost samples is read after the kernel's own count.
#[test]
fn lost_samples_are_counted_once() {
    let busy = Busy::sh("while :; do :; done");
    let Some(mut session) = opened(&busy, Rate::Period(20_000)) else { return };
    session.begin();
    let filled = |session: &Session| {
        session.rings.outputs().samples.iter().map(Ring::filled).max().unwrap_or(0)
    };
    waits_for(&mut session, "a full ring", |session| {
        let full = |ring: &Ring| ring.filled() + (96 << 10) > ring.size();
        session.rings.outputs().samples.iter().any(full)
    });
    // The ring stays full for a while, until there is room for the record.
    std::thread::sleep(Duration::from_millis(300));
    session.drain(os::monotonic_nanos(), |_| {});
    let room = filled(&session);
    waits_for(&mut session, "new samples", |session| filled(session) > room);
    session.stop();
    let counted = session.stats().lost;
    assert!(counted > 0);
    session.drain(u64::MAX, |_| {});
    assert_eq!(session.stats().lost, counted);
    assert!(session.stats.lost > 0, "the records were read");
}

/// Adding and removing programs takes the kernel some time, during which the rings are not read.
#[test]
fn programs_write_nothing_outside_of_the_window() {
    let sleepy = Busy::sh("while :; do read -t 0.002 line < /dev/zero; /bin/true; done");
    let mut session = match open_wall(sleepy.pid()) {
        Ok(session) if session.has_programs() => session,
        Ok(_) => return skip_programs("the filter cannot be loaded"),
        Err(why) => return skip_programs(&why.to_string()),
    };
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(filled(&session), 0, "before");
    session.begin();
    waits_for(&mut session, "waits", |session| filled(session) > 64 << 10);
    session.attacher.disable_samples();
    // A program that was about to write when its event stopped still writes shortly after.
    let is_silent = |_| {
        let before = filled(&session);
        std::thread::sleep(Duration::from_millis(300));
        filled(&session) == before
    };
    assert!((0..10).any(is_silent), "after");
    session.stop();
    assert_eq!(session.stats().lost, 0);
}
