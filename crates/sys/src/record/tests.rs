use super::*;
use proptest::prelude::*;

const FULL: Layout = Layout {
    period: true,
    group: false,
    callchain: true,
    raw: false,
    user_stack: true,
    interrupted: false,
    cgroup: false,
};

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_ne_bytes()).collect()
}

fn sample_bytes() -> Vec<u8> {
    let tid = (7u64 << 32) | 5;
    let mut b = words(&[0, 42, 0x1000, tid, 99, 3]);
    b.extend(words(&[5, CONTEXT_KERNEL, 0xffff_8000_0000_0001, CONTEXT_USER, 0x1000, 0x2000]));
    b.extend(words(&[2, 0xa, 0xb, 0xc, 0xd, 4, 5, 0xb0, 0x50, 0x1000]));
    b.extend(words(&[8, 9, 10, 11, 12, 13, 14, 15]));
    b.extend(words(&[32, 1, 2, 3, 4, 16]));
    b
}

#[test]
fn sample_with_everything() {
    let bytes = sample_bytes();
    let header = Header { kind: abi::PERF_RECORD_SAMPLE, misc: 2, size: bytes.len() as u16 };
    let s = sample(header, &bytes, FULL).unwrap();
    assert_eq!((s.id, s.ip, s.pid, s.tid, s.time), (42, 0x1000, 5, 7, 99));
    assert_eq!((s.period, s.kernel), (Some(3), false));
    assert_eq!(time_of(header, &bytes), Some(99));
    let mut kernel = vec![];
    let mut user = vec![];
    s.callchain.split(&mut kernel, &mut user);
    assert_eq!(kernel, [0xffff_8000_0000_0001]);
    assert_eq!(user, [0x1000, 0x2000]);
    let UserStack::Native { regs, all, bytes, full, .. } = s.user else { panic!("no stack") };
    assert_eq!(regs, Regs { ip: 0x1000, sp: 0x50, bp: 0xb0 });
    let want = [0xa, 0xd, 0xc, 0xb, 4, 5, 0xb0, 0x50, 8, 9, 10, 11, 12, 13, 14, 15];
    assert_eq!(all.in_dwarf_order(), Some(want));
    assert_eq!(AllRegs::new(&[0; 8]).in_dwarf_order(), None);
    assert_eq!(bytes, words(&[1, 2]));
    assert!(!full);
    assert_eq!(s.cgroup, None);
}

#[test]
fn the_cgroup_is_behind_all_other_fields() {
    let layout = Layout { cgroup: true, interrupted: true, ..FULL };
    let mut bytes = sample_bytes();
    bytes.extend(words(&[0, 77]));
    let header = Header { kind: abi::PERF_RECORD_SAMPLE, misc: 2, size: bytes.len() as u16 };
    assert_eq!(sample(header, &bytes, layout).map(|s| s.cgroup), Some(Some(77)));
}

/// A counter's interrupt at the first instruction of a system call: the saved registers are of the
/// call before.
#[cfg(target_arch = "x86_64")]
#[test]
fn registers_that_the_kernel_has_not_saved_are_none() {
    let layout = Layout { interrupted: true, ..FULL };
    let read = |misc: u16, interrupted: &[u64]| {
        let mut bytes = sample_bytes();
        bytes.extend(words(interrupted));
        let header = Header { kind: abi::PERF_RECORD_SAMPLE, misc, size: bytes.len() as u16 };
        let sample = sample(header, &bytes, layout)?;
        Some(matches!(sample.user, UserStack::Native { .. }))
    };
    let at_entry = [2, 0xa, 0x2000, 0xd, 4, 0xb0, 0x48, 8, 9, 10, 11];
    let mut in_call = at_entry;
    in_call[6] = 0xffff_c900_0000_1000;
    assert_eq!(read(1, &at_entry), Some(false));
    assert_eq!(read(1, &in_call), Some(true));
    assert_eq!(read(2, &at_entry), Some(true), "a sample of user code");
    assert_eq!(read(1, &[0]), Some(true), "without the registers");
    assert_eq!(read(1, &at_entry[..10]), None, "one is missing");
}

/// cycles and instructions, as a CPU's counters have them.
#[test]
fn a_sample_of_a_group() {
    let layout = Layout { group: true, ..Layout::default() };
    let read = |group: &[u64]| {
        let mut bytes = words(&[0, 42, 0x1000, (7 << 32) | 5, 99]);
        bytes.extend(words(group));
        let header = Header { kind: abi::PERF_RECORD_SAMPLE, misc: 2, size: bytes.len() as u16 };
        sample(header, &bytes, layout).map(|s| s.group.iter().collect::<Vec<_>>())
    };
    let counts = read(&[2, 9, 9, 1_000_000, 42, 0, 2_500_000, 43, 0]);
    assert_eq!(counts, Some(vec![(42, 1_000_000), (43, 2_500_000)]));
    assert_eq!(read(&[0, 9, 9]), Some(vec![]));
    assert_eq!(read(&[2, 9, 9, 1, 42, 0]), None, "the second event is missing");
    assert_eq!(read(&[u64::MAX, 9, 9, 1, 42, 0]), None);
}

#[test]
fn a_wrong_length_is_refused() {
    let header = Header { kind: abi::PERF_RECORD_SAMPLE, misc: 2, size: 0 };
    for (word, lie) in [(6, u64::MAX), (6, 1 << 20), (30, u64::MAX), (35, 33)] {
        let mut bytes = sample_bytes();
        bytes[word * 8..word * 8 + 8].copy_from_slice(&lie.to_ne_bytes());
        assert_eq!(sample(header, &bytes, FULL), None, "word {word} = {lie}");
    }
}

#[test]
fn mmap2_with_build_id() {
    let mut b = words(&[0, (7 << 32) | 5, 0x4000, 0x1000, 0x2000]);
    b.extend([4, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef]);
    b.extend(words(&[0, 0, 5]));
    b.extend(b"/bin/true\0\0\0\0\0\0\0");
    b.extend(words(&[0, 77, 0]));
    let header = Header {
        kind: abi::PERF_RECORD_MMAP2,
        misc: abi::PERF_RECORD_MISC_MMAP_BUILD_ID as u16,
        size: b.len() as u16,
    };
    let Some(Record::Mmap(m)) = other(header, &b) else { panic!("no mmap") };
    assert_eq!((m.pid, m.start, m.len, m.offset, m.prot), (5, 0x4000, 0x1000, 0x2000, 5));
    assert_eq!(m.build_id, Some(&[0xde, 0xad, 0xbe, 0xef][..]));
    assert_eq!(m.path, b"/bin/true");
    assert_eq!(time_of(header, &b), Some(77));
}

#[test]
fn a_switch_has_its_thread_behind_it() {
    let b = words(&[0, (7 << 32) | 5, 99, 42]);
    let misc = (abi::PERF_RECORD_MISC_SWITCH_OUT | abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT) as u16;
    let header = |kind, misc| Header { kind, misc, size: 0 };
    let preempted = Record::Switch { pid: 5, tid: 7, time: 99, out: true, preempted: true };
    assert_eq!(other(header(abi::PERF_RECORD_SWITCH, misc), &b), Some(preempted));
    let b = words(&[0, (1 << 32) | 1, (7 << 32) | 5, 99, 42]);
    let came = Record::Switch { pid: 5, tid: 7, time: 99, out: false, preempted: false };
    assert_eq!(other(header(abi::PERF_RECORD_SWITCH_CPU_WIDE, 0), &b), Some(came));
}

#[test]
fn ksymbol() {
    let mut b = words(&[0, 0xffff_ffff_c000_0000, 64 | 1 << 32 | 1 << 48]);
    b.extend(b"bpf_prog_1\0\0\0\0\0\0");
    b.extend(words(&[5, 77, 9]));
    let header = Header { kind: abi::PERF_RECORD_KSYMBOL, misc: 0, size: b.len() as u16 };
    let name = b"bpf_prog_1";
    let expected = Record::Ksymbol { start: 0xffff_ffff_c000_0000, len: 64, gone: true, name };
    assert_eq!(other(header, &b), Some(expected));
    assert_eq!(time_of(header, &b), Some(77));
    // A record of another recording has the trailer's size twice, but no more bytes.
    b.extend(words(&[1, 2, 3]));
    let header = Header { size: b.len() as u16, ..header };
    assert_eq!(other(header, &b), Some(expected));
    assert_eq!(time_of(header, &b), Some(77));
}

proptest! {
    #[test]
    fn any_bytes_decode_without_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        kind in 0u32..24, misc: u16, period: bool, group: bool, callchain: bool, raw: bool,
        user_stack: bool, interrupted: bool, cgroup: bool,
    ) {
        let header = Header { kind, misc, size: bytes.len() as u16 };
        let _ = time_of(header, &bytes);
        let _ = sample_id(&bytes);
        let _ = other(header, &bytes);
        let layout = Layout { period, group, callchain, raw, user_stack, interrupted, cgroup };
        if let Some(s) = sample(header, &bytes, layout) {
            s.group.iter().count();
            s.callchain.split(&mut Vec::new(), &mut Vec::new());
        }
    }

    #[test]
    fn a_damaged_sample_decodes_without_panic(at in 0usize..176, to: u8, cut in 0usize..177) {
        let mut bytes = sample_bytes();
        if let Some(b) = bytes.get_mut(at) { *b = to; }
        bytes.truncate(cut);
        let header = Header { kind: abi::PERF_RECORD_SAMPLE, misc: 1, size: 0 };
        let _ = sample(header, &bytes, FULL);
    }
}
