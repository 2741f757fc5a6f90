use super::*;
use crate::sampler::bpf::sched::{LastState, ThreadTimes};
use crate::sampler::tracepoint::Field;
use crate::sampler::{Event, StackMethod};
use profile::{Builder, LabelValue};
use sys::record::{Callchain, UserStack};

const PID: i32 = i32::MAX;
const TID: i32 = i32::MAX - 1;
const CLOCK: usize = 0;
const SWITCH: usize = 1;
const WAKEUP: usize = 3;

/// Wall time, and the profile to which it is added.
struct Recorded {
    wall: Wall,
    maker: StackMaker,
}

impl Recorded {
    /// From the kernel's records of switches.
    fn from_switches() -> Recorded {
        let prev_state = Field::at(32, 8);
        let woken = Field::at(24, 4);
        Recorded::new(WallSource::Switches(FromSwitches::with_fields(prev_state, woken)))
    }

    /// From records of BPF programs.
    fn from_bpf() -> Recorded {
        Recorded::new(WallSource::Bpf(FromBpf::default()))
    }

    fn new(way: WallSource) -> Recorded {
        let builder = Builder::new(&[("samples", "count"), ("wall", "nanoseconds")]);
        let spec = Spec { column: Column(1), running: true, min_block: 0, cpu_time: None };
        let maker = StackMaker::new(builder, StackMethod::None);
        Recorded { wall: Wall { spec, program: None, way }, maker }
    }

    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Sample { event, weight, sample, .. } => {
                self.wall.sample(&mut self.maker, *event, sample, *weight);
            }
            Event::Other(record) => {
                self.maker.record(record);
                self.wall.record(&mut self.maker, record);
            }
        }
    }

    /// Wall time by state and address (0: unknown stack), with the sums of threads that have not
    /// exited.
    fn times_with(
        mut self,
        end: u64,
        threads: Vec<(ThreadTimes, LastState)>,
    ) -> Vec<(String, u64, i64)> {
        let Recorded { wall, maker } = &mut self;
        match &mut wall.way {
            WallSource::Bpf(bpf) => {
                let end = End { time: end, ..End::default() };
                bpf.end(&wall.spec, maker, &end, threads);
                bpf.sums.scale(maker, wall.spec.column);
            }
            WallSource::Switches(switches) => {
                switches.end(&wall.spec, maker, end);
                switches.sums.scale(maker, wall.spec.column);
            }
        }
        maker.scale_estimates();
        let state = maker.builder.profile.strings.intern(profile::label::STATE);
        let profile = self.maker.builder.finish(None);
        let mut times: Vec<(String, u64, i64)> = Vec::new();
        for (i, sample) in profile.samples.iter().enumerate() {
            let Some(LabelValue::Str(state)) = profile.labels.value(sample.labels, state) else {
                panic!("no state")
            };
            let leaf = profile.stacks.get(sample.stack)[0];
            let address = profile.locations[leaf.0 as usize].address;
            times.push((profile.str(state).to_owned(), address, profile.values[i * 2 + 1]));
        }
        times.sort();
        times
    }

    fn times(self, end: u64) -> Vec<(String, u64, i64)> {
        self.times_with(end, Vec::new())
    }
}

fn sample(event: usize, time: u64, ip: u64) -> Event<'static> {
    let sample = Sample {
        cgroup: None,
        walked: &[],
        id: 1,
        ip,
        pid: PID,
        tid: TID,
        time,
        period: None,
        group: Default::default(),
        kernel: true,
        callchain: Callchain::default(),
        raw: &[],
        user: UserStack::None,
    };
    Event::Sample { event, weight: 1, represents: 1, sample }
}

/// Another thread wakes the thread.
fn wakeup(time: u64) -> Event<'static> {
    static RAW: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let raw = RAW.get_or_init(|| [&[0; 24], &TID.to_ne_bytes()[..], &[0; 8]].concat());
    let Event::Sample { event, weight, represents, sample } = sample(WAKEUP, time, 0) else {
        unreachable!()
    };
    Event::Sample { event, weight, represents, sample: Sample { tid: 1, raw, ..sample } }
}

fn switch(time: u64, out: bool) -> Event<'static> {
    Event::Other(Record::Switch { pid: PID, tid: TID, time, out, preempted: false })
}

fn sleeping(address: u64, time: i64) -> (String, u64, i64) {
    ("sleeping".into(), address, time)
}

fn running(address: u64, time: i64) -> (String, u64, i64) {
    ("running".into(), address, time)
}

#[test]
fn time_is_divided_where_it_changes() {
    let mut a = Recorded::from_switches();
    // It runs at its first record, at 100, and stops at 130.
    for event in [sample(CLOCK, 100, 0xa), sample(SWITCH, 129, 0xb), switch(130, true)] {
        a.event(&event);
    }
    // It comes back at 1000, and stops at 1010, which was not sampled.
    for event in [switch(1000, false), switch(1010, true), switch(1050, false)] {
        a.event(&event);
    }
    // Time without a sample is attributed to the last sample.
    let want = [running(0xa, 190), sleeping(0xb, 910)];
    assert_eq!(a.times(1100), want);
}

#[test]
fn after_a_wake_up_it_waits_for_a_cpu() {
    let mut a = Recorded::from_switches();
    // The second is the same wake-up; a running thread is not woken.
    for event in [wakeup(10), sample(CLOCK, 100, 0xa), wakeup(110), sample(SWITCH, 129, 0xb)] {
        a.event(&event);
    }
    for event in [switch(130, true), wakeup(400), wakeup(420), switch(1000, false)] {
        a.event(&event);
    }
    // It may be woken before it has stopped.
    for event in [sample(SWITCH, 1005, 0xc), wakeup(1007), switch(1010, true)] {
        a.event(&event);
    }
    let runnable = |address, time| ("runnable".to_owned(), address, time);
    // Time after the last sample is attributed to that sample's stack.
    let want = [runnable(0xb, 600), runnable(0xc, 90), running(0xa, 140), sleeping(0xb, 270)];
    assert_eq!(a.times(1100), want);
}

#[test]
fn many_waits_are_told_by_some_of_them() {
    let mut a = Recorded::from_switches();
    let mut time = 0;
    for n in 1..=610u64 {
        let (address, wait) = if n % 2 == 0 { (0xa, 10) } else { (0xb, 30) };
        time += 5;
        if n % 61 == 0 {
            a.event(&sample(SWITCH, time, address));
        }
        a.event(&switch(time, true));
        time += wait;
        a.event(&switch(time, false));
    }
    let slept = a.times(time).into_iter().filter(|t| t.0 == "sleeping").collect::<Vec<_>>();
    assert_eq!(slept, [sleeping(0xa, 305 * 10), sleeping(0xb, 305 * 30)]);
}

#[test]
fn what_has_ended_waits_no_more() {
    let mut a = Recorded::from_switches();
    a.event(&switch(50, false));
    a.event(&Event::Other(Record::Exit { pid: PID, tid: TID, time: 90 }));
    for event in [sample(SWITCH, 95, 0xa), switch(96, true)] {
        a.event(&event);
    }
    // Until 50 it appeared to sleep, in an unknown stack.
    let all = a.times(1000);
    assert_eq!(all.iter().map(|t| t.2).sum::<i64>(), 90);
    assert!(all.iter().all(|t| t.1 == 0), "{all:?}");
}

/// A record of BPF programs, as words.
fn written(event: usize, ip: u64, words: &[u64]) -> Event<'static> {
    let raw = words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>().leak();
    let Event::Sample { weight, represents, sample, .. } = sample(event, 0, ip) else {
        unreachable!()
    };
    Event::Sample { event, weight, represents, sample: Sample { raw, ..sample } }
}

#[test]
fn estimates_are_scaled_to_the_sums_that_programs_tell() {
    const WAITED: usize = 1;
    const ENDED: usize = 2;
    const SLEEPING: u64 = 2;
    let mut a = Recorded::from_bpf();
    let sums = [500, 100, 16_000, 0, 0];
    let value = [[0, 0, 0, PID as u64].as_slice(), &sums].concat();
    for event in [
        sample(CLOCK, 100, 0xa),
        // It lasted an interval, and represents itself.
        written(WAITED, 0xb, &[SLEEPING, 10_000, 100, 4096]),
        // One of several.
        written(WAITED, 0xc, &[SLEEPING, 1000, 0, 4096]),
        written(WAITED, 0xc, &[SLEEPING, 1000]),
        written(ENDED, 0, &[[TID as u64].as_slice(), &value].concat()),
    ] {
        a.event(&event);
    }
    let waits = |state: &str, address, time| (state.to_owned(), address, time);
    assert_eq!(
        a.times(1000),
        [
            waits("runnable", 0xb, 100),
            running(0xa, 500),
            waits("sleeping", 0xb, 10_000),
            waits("sleeping", 0xc, 6_000),
        ]
    );
}

#[test]
fn a_thread_that_was_not_sampled_ran_where_it_stopped() {
    let mut a = Recorded::from_bpf();
    a.event(&written(1, 0xb, &[3, 700, 0, 0]));
    let thread = ThreadId { pid: PID, tid: TID };
    let times = ThreadTimes { thread, all: [50, 0, 0, 700, 0] };
    let last = LastState { state: Some(ThreadState::Running), since: 900, woken: 0 };
    let found = a.times_with(1000, vec![(times, last)]);
    assert_eq!(found, [("disk".to_owned(), 0xb, 700), running(0xb, 150)]);
}
