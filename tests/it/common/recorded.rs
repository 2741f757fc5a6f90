//! perf's recordings with registers and stack dumps, unwound by prof's own unwinder.

use std::path::Path;

use linux_perf_data::linux_perf_event_reader::{EventRecord, Mmap2FileId};
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use sys::ThreadId;
use sys::processes::ProcessTable;
use sys::record::{AllRegs, FileId, Mmap, Record, Regs, Rest, UserStack};
use unwind::{Frame, StackEnd, Unwinder};

/// `PROT_EXEC` of `mmap(2)`.
const EXECUTABLE: u32 = 4;

/// A record of a perf.data file, as far as unwinding needs it.
pub enum Item {
    Map { pid: i32, start: u64, len: u64, offset: u64, file: FileId, path: Vec<u8> },
    Exec { pid: i32, name: Vec<u8> },
    Fork { pid: i32, parent: i32, tid: i32, parent_tid: i32 },
    Sample(Sample),
}

/// A sample with its registers (in the kernel's order) and stack.
#[derive(Clone)]
pub struct Sample {
    pub pid: i32,
    pub tid: i32,
    /// Nanoseconds.
    pub time: u64,
    pub registers: Vec<u8>,
    pub stack: Vec<u8>,
    pub full: bool,
}

/// Reads a perf.data file.
pub fn read(path: &Path) -> Vec<Item> {
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("perf.data"));
    let PerfFileReader { mut perf_file, mut record_iter } =
        PerfFileReader::parse_file(file).expect("a perf.data file");
    let mut items = Vec::new();
    while let Some(record) = record_iter.next_record(&mut perf_file).expect("a record") {
        let PerfFileRecord::EventRecord { record, .. } = record else { continue };
        match record.parse().expect("a record that can be parsed") {
            EventRecord::Mmap2(m) if m.protection & EXECUTABLE != 0 => {
                let file = match m.file_id {
                    Mmap2FileId::InodeAndVersion(id) => {
                        FileId { device: libc::makedev(id.major, id.minor), inode: id.inode }
                    }
                    Mmap2FileId::BuildId(_) => FileId::default(),
                };
                let path = m.path.as_slice().into_owned();
                let (start, len, offset) = (m.address, m.length, m.page_offset);
                items.push(Item::Map { pid: m.pid, start, len, offset, file, path });
            }
            EventRecord::Comm(c) if c.is_execve => {
                items.push(Item::Exec { pid: c.pid, name: c.name.as_slice().into_owned() });
            }
            EventRecord::Fork(f) => items.push(Item::Fork {
                pid: f.pid,
                parent: f.ppid,
                tid: f.tid,
                parent_tid: f.ptid,
            }),
            EventRecord::Sample(s) => items.extend(sample(&s).map(Item::Sample)),
            _ => {}
        }
    }
    items
}

/// `None`: it has no user stack.
fn sample(s: &linux_perf_data::linux_perf_event_reader::SampleRecord<'_>) -> Option<Sample> {
    const ORDER: [u64; 17] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 18, 19, 20, 21, 22, 23];
    let (regs, (dump, used)) = (s.user_regs.as_ref()?, s.user_stack.as_ref()?);
    let dump = dump.as_slice();
    let registers =
        ORDER.iter().flat_map(|&r| regs.get(r).unwrap_or(0).to_ne_bytes()).collect::<Vec<u8>>();
    let stack = dump.get(..*used as usize)?.to_vec();
    let full = stack.len() == dump.len();
    let (pid, tid, time) = (s.pid?, s.tid?, s.timestamp?);
    Some(Sample { pid, tid, time, registers, stack, full })
}

/// Unwinds recordings, in the order of time.
#[derive(Default)]
pub struct Replay {
    pub table: ProcessTable,
    pub unwinder: Unwinder,
    pub frames: Vec<Frame>,
}

impl Replay {
    /// Takes in an item; for a sample: unwinds it into [`Replay::frames`].
    pub fn take(&mut self, item: &Item) -> Option<StackEnd> {
        match item {
            Item::Map { pid, start, len, offset, file, path } => {
                let map = Mmap {
                    pid: *pid,
                    tid: *pid,
                    start: *start,
                    len: *len,
                    offset: *offset,
                    prot: EXECUTABLE,
                    build_id: None,
                    file: *file,
                    path,
                };
                self.table.apply(&Record::Mmap(map));
                None
            }
            Item::Exec { pid, name } => {
                self.table.apply(&Record::Comm { pid: *pid, tid: *pid, exec: true, name });
                None
            }
            &Item::Fork { pid, parent, tid, parent_tid } => {
                self.table.apply(&Record::Fork { pid, parent, tid, parent_tid, time: 0 });
                None
            }
            Item::Sample(sample) => Some(self.unwind(sample)),
        }
    }

    /// Unwinds a sample into [`Replay::frames`].
    pub fn unwind(&mut self, sample: &Sample) -> StackEnd {
        self.unwind_as(sample.tid, sample)
    }

    /// The same, as if another thread had taken it.
    pub fn unwind_as(&mut self, tid: i32, sample: &Sample) -> StackEnd {
        let word = |i: usize| u64::from_ne_bytes(*sample.registers[i * 8..].first_chunk().unwrap());
        let user = UserStack::Native {
            regs: Regs { bp: word(6), sp: word(7), ip: word(8) },
            all: AllRegs::new(&sample.registers),
            bytes: &sample.stack,
            full: sample.full,
            rest: Rest::default(),
        };
        let (process, images) = self.table.split(sample.pid);
        let thread = ThreadId { pid: sample.pid, tid };
        self.unwinder.unwind(thread, &process.regions, images, user, &[], &mut self.frames)
    }

    /// The frames as offsets in the files that they lie in, calls rather than return addresses:
    /// as perf prints them.
    pub fn offsets(&mut self, pid: i32) -> Vec<u64> {
        let regions = self.table.process(pid).regions.clone();
        let offset = |f: &Frame| {
            let at = f.instruction();
            regions.find(at).map_or(at.0, |r| r.offset_of(at).0)
        };
        self.frames.iter().map(offset).collect()
    }
}
