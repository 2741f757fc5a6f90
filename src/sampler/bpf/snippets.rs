//! Code that prof's BPF programs share.

use super::code::{AccessSize, AluOp, BpfCode, CodeLabel, Helper, If, Reg};
use super::syscall::Map;
use super::{Losses, number};
use sys::procfs;

use Reg::{R0, R1, R2, R3, R4, R5, R10};

/// Maximum number of samples that programs write on each CPU, approximately: N in a burst, in
/// addition to one every 2^[`SHIFT`] nanoseconds.
const BURST: i32 = 200;
/// See [`BURST`].
const SHIFT: i32 = 19;

/// Number of samples beyond the burst before the interval is increased again.
const NEXT: i32 = 20;

/// Number of samples of a burst below which the interval is halved, each time after [`HALVE_AFTER`]
/// nanoseconds.
const FEW: i32 = BURST / 4;
/// See [`FEW`].
const HALVE_AFTER: i32 = 10_000_000;

/// Number of samples of a kind that are written in any case.
const ALWAYS: i32 = 4;

/// The shortest interval in nanoseconds above 0: a power of two, as all of them are.
const SHORTEST_INTERVAL: u64 = 1 << 12;

/// The longest interval in nanoseconds, about a second: longer events are never left out, and the
/// probability of shorter ones comes from a random number of 32 bits. While a ring is full, the
/// interval would otherwise grow without end.
const LONGEST_INTERVAL: u64 = 1 << 30;

/// Offsets in a CPU's value of the control map, in bytes.
pub mod control {
    /// Time until which samples have decayed.
    pub const DECAYED: i16 = 0;
    /// Samples of the burst that have not decayed.
    pub const SAMPLES: i16 = 8;
    /// The interval in nanoseconds, of which one is sampled; 0: each.
    pub const INTERVAL: i16 = 16;
    /// Number of map entries for which there was no room.
    pub const LOST: i16 = 24;
    /// The largest interval so far.
    pub const LARGEST: i16 = 32;
    /// Time at which the interval was changed.
    pub const CHANGED: i16 = 40;
    /// Size of the value.
    pub const SIZE: usize = 48;
}

/// Offsets on the stack of every program: the key of a map, and the program's argument.
pub const KEY: i16 = -8;
/// See [`KEY`].
pub const CONTEXT: i16 = -16;

/// The flag of a thread that counts from its `execve` on.
pub const AWAITED: i32 = 2;

/// `R0` = the value of the key at [`KEY`] in `map`, or jumps to `none`.
pub fn look_up(code: &mut BpfCode, map: &Map, none: CodeLabel) {
    look_up_at(code, map, KEY, none);
}

/// Like [`look_up`], with the key at another offset on the stack.
pub fn look_up_at(code: &mut BpfCode, map: &Map, key: i16, none: CodeLabel) {
    code.map(R1, map.fd());
    code.op(AluOp::Mov, R2, R10);
    code.op_value(AluOp::Add, R2, i32::from(key));
    code.call(Helper::MapLookup);
    code.jump_if_value(If::Equal, R0, 0, none);
}

/// The key at [`KEY`] = the current thread; `R0` = its process and thread ID.
pub fn this_thread(code: &mut BpfCode) {
    code.call(Helper::PidTgid);
    code.store(AccessSize::Word, R10, KEY, R0);
}

/// Removes the key at [`KEY`].
pub fn delete(code: &mut BpfCode, map: &Map) {
    code.map(R1, map.fd());
    code.op(AluOp::Mov, R2, R10);
    code.op_value(AluOp::Add, R2, i32::from(KEY));
    code.call(Helper::MapDelete);
}

/// Sets the value of the key at [`KEY`] to the one at offset `value` on the stack. `R0` = 0 if
/// there is room.
pub fn update(code: &mut BpfCode, map: &Map, value: i16) {
    update_at(code, map, KEY, value);
}

/// Like [`update`], with the key at another offset on the stack.
pub fn update_at(code: &mut BpfCode, map: &Map, key: i16, value: i16) {
    code.op(AluOp::Mov, R3, R10);
    code.op_value(AluOp::Add, R3, i32::from(value));
    code.map(R1, map.fd());
    code.op(AluOp::Mov, R2, R10);
    code.op_value(AluOp::Add, R2, i32::from(key));
    code.op_value(AluOp::Mov, R4, 0);
    code.call(Helper::MapUpdate);
}

/// Reads `bytes` bytes of the thread's memory at the address in `R3` to an offset on the program's
/// stack, or jumps to `failed`.
pub fn read_user(code: &mut BpfCode, to: i16, bytes: i32, failed: CodeLabel) {
    code.op(AluOp::Mov, R1, R10);
    code.op_value(AluOp::Add, R1, i32::from(to));
    code.op_value(AluOp::Mov, R2, bytes);
    code.call(Helper::ProbeReadUser);
    code.jump_if_value(If::Differ, R0, 0, failed);
}

/// `R2` = the flags with which a record is written to a ring of `size` bytes: prof is woken each time
/// that another quarter of the ring is full, by all records of the first eighth behind that. The
/// first one may see a later position, because other CPUs write too.
pub fn wake_when_due(c: &mut BpfCode, ring: &Map, size: u32) {
    /// Flags of `bpf_ringbuf_submit` and `bpf_ringbuf_output`.
    const NO_WAKEUP: i32 = 1;
    const FORCE_WAKEUP: i32 = 2;
    let quiet = c.label();
    c.map(R1, ring.fd());
    // `BPF_RB_AVAIL_DATA`
    c.op_value(AluOp::Mov, R2, 0);
    c.call(Helper::RingQuery);
    let quarter = size as i32 / 4;
    c.op_value(AluOp::Mov, R2, NO_WAKEUP);
    c.jump_if_value(If::Less, R0, quarter, quiet);
    c.op_value(AluOp::And, R0, quarter - 1);
    c.jump_if_value(If::AtLeast, R0, quarter / 8, quiet);
    c.op_value(AluOp::Mov, R2, FORCE_WAKEUP);
    c.put(quiet);
}

/// Registers of [`choose`].
#[derive(Clone, Copy)]
pub struct ChoiceRegisters {
    /// The time.
    pub now: Reg,
    /// Nanoseconds that the event took.
    pub took: Reg,
    /// Receives the CPU's value of the map.
    pub control: Reg,
}

/// Decides whether an event that took `took` nanoseconds is sampled: all that took an interval or
/// longer, and shorter ones with the probability took / interval, so that each represents interval
/// / took of its kind. Adapts the interval so that there are no more than [`BURST`].
///
/// `now` and `took` are preserved; `control` becomes the CPU's value of the map, and `R4` the
/// interval, or 0. Jumps to `no`, or continues. `nth`: the first few of a kind are sampled in any
/// case, unless there are very many kinds; each represents only itself.
pub fn choose(
    code: &mut BpfCode,
    map: &Map,
    registers: ChoiceRegisters,
    nth: Option<Reg>,
    no: CodeLabel,
) {
    let ChoiceRegisters { now, took, control } = registers;
    let yes = code.label();
    code.store_value(AccessSize::Word, R10, KEY, 0);
    look_up(code, map, no);
    code.op(AluOp::Mov, control, R0);
    forget(code, now, control);
    adapt(code, now, control);
    code.jump_if(If::AtLeast, took, R4, yes);
    if let Some(nth) = nth {
        let by_chance = code.label();
        code.jump_if_value(If::Greater, nth, ALWAYS, by_chance);
        code.load(AccessSize::Long, R3, control, control::SAMPLES);
        code.jump_if_value(If::AtLeast, R3, BURST, by_chance);
        code.op_value(AluOp::Mov, R4, 0);
        code.jump(yes);
        code.put(by_chance);
    }
    code.call(Helper::Random);
    code.load(AccessSize::Long, R4, control, control::INTERVAL);
    code.op(AluOp::Mov, R1, R4);
    code.op_value(AluOp::Sub, R1, 1);
    code.op(AluOp::And, R0, R1);
    code.jump_if(If::AtLeast, R0, took, no);
    code.put(yes);
    code.op_value(AluOp::Mov, R2, 1);
    code.add_to(control, control::SAMPLES, R2, R1);
}

/// Lets samples decay with time. `R3` = the number that remains.
fn forget(code: &mut BpfCode, now: Reg, control: Reg) {
    use control::{DECAYED, SAMPLES};
    let [recent, some] = [(); 2].map(|()| code.label());
    code.load(AccessSize::Long, R3, control, SAMPLES);
    code.load(AccessSize::Long, R1, control, DECAYED);
    code.op(AluOp::Mov, R2, now);
    code.op(AluOp::Sub, R2, R1);
    code.op_value(AluOp::Rsh, R2, SHIFT);
    code.jump_if_value(If::Equal, R2, 0, recent);
    code.store(AccessSize::Long, control, DECAYED, now);
    code.jump_if(If::AtLeast, R3, R2, some);
    code.op(AluOp::Mov, R2, R3);
    code.put(some);
    code.op(AluOp::Sub, R3, R2);
    code.store(AccessSize::Long, control, SAMPLES, R3);
    code.put(recent);
}

/// Multiplies the interval by four if there are `R3` samples too many, and halves it when there are
/// few. `R4` = the interval.
fn adapt(code: &mut BpfCode, now: Reg, control: Reg) {
    use control::{CHANGED, INTERVAL, LARGEST, SAMPLES};
    let [widen, first, set, done] = [(); 4].map(|()| code.label());
    code.load(AccessSize::Long, R4, control, INTERVAL);
    code.jump_if_value(If::AtLeast, R3, BURST, widen);
    code.jump_if_value(If::Equal, R4, 0, done);
    code.jump_if_value(If::AtLeast, R3, FEW, done);
    code.load(AccessSize::Long, R1, control, CHANGED);
    code.op(AluOp::Mov, R2, now);
    code.op(AluOp::Sub, R2, R1);
    code.jump_if_value(If::Less, R2, HALVE_AFTER, done);
    code.op_value(AluOp::Rsh, R4, 1);
    code.jump_if_value(If::AtLeast, R4, SHORTEST_INTERVAL as i32, set);
    code.op_value(AluOp::Mov, R4, 0);
    code.jump(set);

    code.put(widen);
    code.store_value(AccessSize::Long, control, SAMPLES, BURST - NEXT);
    code.jump_if_value(If::Equal, R4, 0, first);
    code.op_value(AluOp::Lsh, R4, 2);
    code.jump_if_value(If::Less, R4, LONGEST_INTERVAL as i32, set);
    code.op_value(AluOp::Mov, R4, LONGEST_INTERVAL as i32);
    code.jump(set);
    code.put(first);
    code.op_value(AluOp::Mov, R4, SHORTEST_INTERVAL as i32);

    code.put(set);
    code.store(AccessSize::Long, control, INTERVAL, R4);
    code.store(AccessSize::Long, control, CHANGED, now);
    code.load(AccessSize::Long, R5, control, LARGEST);
    code.jump_if(If::AtLeast, R5, R4, done);
    code.store(AccessSize::Long, control, LARGEST, R4);
    code.put(done);
}

/// Writes `length` bytes at offset `raw` of the stack; see [`write_bytes`].
pub fn write_record(code: &mut BpfCode, map: &Map, raw: i16, length: i32, now: Reg, control: Reg) {
    let bytes = RecordBytes::OnStack { at: raw, length };
    write_bytes(code, Output::by_cpu(map), bytes, RecordRegisters { now, control });
}

/// The bytes of a record.
#[derive(Clone, Copy)]
pub enum RecordBytes {
    /// At an offset of the stack.
    OnStack {
        /// The offset.
        at: i16,
        /// Their number.
        length: i32,
    },
    /// In a map's value, both in registers.
    In {
        /// The value.
        from: Reg,
        /// Their number.
        length: Reg,
    },
}

/// The event of a map that a record is written to.
#[derive(Clone, Copy)]
pub enum EventIndex {
    /// That with the number of this CPU.
    Cpu,
    /// That with the number in a word of the stack, at this offset; it has to be an event of this CPU.
    Word(i16),
}

/// `BPF_F_CURRENT_CPU`
pub const THIS_CPU: u64 = 0xffff_ffff;

/// The events that a record is written to.
#[derive(Clone, Copy)]
pub struct Output<'a> {
    /// Their map.
    pub map: &'a Map,
    /// Which of them.
    pub index: EventIndex,
}

impl<'a> Output<'a> {
    /// The events of a map with one for each CPU.
    pub fn by_cpu(map: &'a Map) -> Output<'a> {
        Output { map, index: EventIndex::Cpu }
    }
}

/// Registers of [`write_bytes`].
#[derive(Clone, Copy)]
pub struct RecordRegisters {
    /// The time.
    pub now: Reg,
    /// The CPU's value of the control map.
    pub control: Reg,
}

/// Writes bytes, with a sample if the events of the output have one. The program's argument is at
/// [`CONTEXT`]. If the ring is full, which the kernel counts, fewer are written from then on. Outside
/// of the recording's window the events are disabled, and nothing is written.
pub fn write_bytes(
    code: &mut BpfCode,
    output: Output<'_>,
    bytes: RecordBytes,
    RecordRegisters { now, control }: RecordRegisters,
) {
    let done = code.label();
    code.load(AccessSize::Long, R1, R10, CONTEXT);
    code.map(R2, output.map.fd());
    match output.index {
        EventIndex::Cpu => code.number(R3, THIS_CPU),
        EventIndex::Word(at) => code.load(AccessSize::Long, R3, R10, at),
    }
    match bytes {
        RecordBytes::OnStack { at, length } => {
            code.op(AluOp::Mov, R4, R10);
            code.op_value(AluOp::Add, R4, i32::from(at));
            code.op_value(AluOp::Mov, R5, length);
        }
        RecordBytes::In { from, length } => {
            code.op(AluOp::Mov, R4, from);
            code.op(AluOp::Mov, R5, length);
        }
    }
    code.call(Helper::PerfEventOutput);
    code.jump_if_value(If::Equal, R0, 0, done);
    code.jump_if_value(If::Equal, R0, -libc::EOPNOTSUPP, done);
    // Once for all that find it full.
    code.load(AccessSize::Long, R1, control, control::CHANGED);
    code.op(AluOp::Mov, R2, now);
    code.op(AluOp::Sub, R2, R1);
    code.jump_if_value(If::Less, R2, 1 << 20, done);
    code.store_value(AccessSize::Long, control, control::SAMPLES, BURST);
    code.put(done);
}

/// Counts that there was no room in a map; overwrites the key at [`KEY`].
pub fn count_lost(code: &mut BpfCode, map: &Map) {
    let none = code.label();
    code.store_value(AccessSize::Word, R10, KEY, 0);
    look_up(code, map, none);
    code.op_value(AluOp::Mov, R2, 1);
    code.add_to(R0, control::LOST, R2, R1);
    code.put(none);
}

/// The losses in a control map at the end.
pub fn losses(map: &Map) -> Losses {
    let cpus = procfs::possible_cpus();
    let mut values = vec![0; control::SIZE * cpus];
    if map.get(&0_u32.to_ne_bytes(), &mut values, cpus).is_err() {
        return Losses { threads: 0, largest_interval: 0 };
    }
    let counts_at = |at| values.chunks_exact(control::SIZE).filter_map(move |cpu| number(cpu, at));
    Losses {
        threads: counts_at(control::LOST).sum(),
        largest_interval: counts_at(control::LARGEST).max().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
