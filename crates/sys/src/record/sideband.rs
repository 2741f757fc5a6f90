//! Decodes the records that are no samples: of processes, mappings, losses.

use perf_event_open_sys::bindings as abi;

use super::{FileId, HEADER, Header, Mmap, Record, RecordReader, TRAILER};

/// Decodes any record except a sample (header included). `None` if it is inconsistent.
pub fn other(header: Header, record: &[u8]) -> Option<Record<'_>> {
    let body_end = record.len().checked_sub(TRAILER)?;
    let mut r = RecordReader(record.get(HEADER..body_end)?);
    Some(match header.kind {
        abi::PERF_RECORD_MMAP2 => Record::Mmap(mmap2(header, r)?),
        abi::PERF_RECORD_COMM => {
            let (pid, tid) = r.pair()?;
            let exec = u32::from(header.misc) & abi::PERF_RECORD_MISC_COMM_EXEC != 0;
            Record::Comm { pid, tid, exec, name: r.text() }
        }
        abi::PERF_RECORD_FORK => {
            let (pid, parent) = r.pair()?;
            let (tid, parent_tid) = r.pair()?;
            Record::Fork { pid, parent, tid, parent_tid, time: r.u64()? }
        }
        abi::PERF_RECORD_EXIT => {
            let (pid, _) = r.pair()?;
            let (tid, _) = r.pair()?;
            Record::Exit { pid, tid, time: r.u64()? }
        }
        abi::PERF_RECORD_LOST => {
            r.u64()?;
            Record::Lost(r.u64()?)
        }
        abi::PERF_RECORD_LOST_SAMPLES => Record::LostSamples(r.u64()?),
        abi::PERF_RECORD_KSYMBOL => {
            let start = r.u64()?;
            let (len, kind) = r.two_u32()?;
            let flags = kind >> 16;
            let gone = flags & abi::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0;
            Record::Ksymbol { start, len: len.into(), gone, name: r.text() }
        }
        abi::PERF_RECORD_SWITCH | abi::PERF_RECORD_SWITCH_CPU_WIDE => {
            // The thread is in the trailer.
            let mut trailer = RecordReader(record.get(body_end..)?);
            let ((pid, tid), time) = (trailer.pair()?, trailer.u64()?);
            let is = |bit: u32| u32::from(header.misc) & bit != 0;
            let out = is(abi::PERF_RECORD_MISC_SWITCH_OUT);
            let preempted = out && is(abi::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
            Record::Switch { pid, tid, time, out, preempted }
        }
        abi::PERF_RECORD_THROTTLE => Record::Throttle,
        _ => Record::Other,
    })
}

fn mmap2<'a>(header: Header, mut r: RecordReader<'a>) -> Option<Mmap<'a>> {
    let (pid, tid) = r.pair()?;
    let start = r.u64()?;
    let len = r.u64()?;
    let offset = r.u64()?;
    let mut identity = RecordReader(r.bytes(24)?);
    let (prot, _flags) = r.two_u32()?;
    let mut build_id = None;
    let mut file = FileId::default();
    if u32::from(header.misc) & abi::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        let (size, id) = identity.0.split_first()?;
        build_id = Some(id.get(3..3 + usize::from(*size))?);
    } else {
        let (major, minor) = identity.two_u32()?;
        file = FileId { device: libc::makedev(major, minor), inode: identity.u64()? };
    }
    Some(Mmap { pid, tid, start, len, offset, prot, build_id, file, path: r.text() })
}
