//! Records: those of the kernel, and those that perf adds.

use super::fields::Fields;

/// Bits of a record's `misc`.
const CPU_MODE: u16 = 7;
const MODE_KERNEL: u16 = 1;
const MODE_USER: u16 = 2;
const MAP_BUILD_ID: u16 = 1 << 14;
const MAP_DATA: u16 = 1 << 13;
const COMM_EXEC: u16 = 1 << 13;

/// Bit of `misc`: samples that the program of `perf record --filter` left out
/// (`PERF_RECORD_MISC_LOST_SAMPLES_BPF`).
const FILTERED: u16 = 1 << 15;
const BUILD_ID_SIZE: u16 = 1 << 15;

/// `PROT_EXEC` and `PROT_WRITE` of `mmap(2)`.
const EXECUTABLE: u32 = 4;
const WRITABLE: u32 = 2;

/// Bytes of a build ID's field.
const BUILD_ID: usize = 20;

/// Kinds of records (`PERF_RECORD_*`).
pub mod kind {
    pub const MMAP: u32 = 1;
    pub const LOST: u32 = 2;
    pub const COMM: u32 = 3;
    pub const EXIT: u32 = 4;
    pub const THROTTLE: u32 = 5;
    pub const FORK: u32 = 7;
    pub const SAMPLE: u32 = 9;
    pub const MMAP2: u32 = 10;
    pub const LOST_SAMPLES: u32 = 13;
    pub const KSYMBOL: u32 = 17;
    /// From here on, perf's own.
    pub const FIRST_OF_PERF: u32 = 64;
    pub const HEADER_ATTR: u32 = 64;
    pub const TRACING_DATA: u32 = 66;
    pub const BUILD_ID: u32 = 67;
    pub const FINISHED_ROUND: u32 = 68;
    pub const AUXTRACE: u32 = 71;
    pub const EVENT_UPDATE: u32 = 78;
    pub const HEADER_FEATURE: u32 = 80;
    pub const COMPRESSED: u32 = 81;
    pub const COMPRESSED2: u32 = 83;
}

/// A record as it is in the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawRecord {
    /// One of [`kind`].
    pub kind: u32,
    pub misc: u16,
    pub body: Vec<u8>,
}

/// The part of a machine that was sampled, or that a mapping belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Kernel,
    User,
    /// A virtual machine, or a hypervisor.
    Other,
}

/// Identity of a mapped file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedFile<'a> {
    Unknown,
    Inode { major: u32, minor: u32, inode: u64 },
    BuildId(&'a [u8]),
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map<'a> {
    pub mode: Mode,
    pub pid: i32,
    pub start: u64,
    pub length: u64,
    pub offset: u64,
    pub file: MappedFile<'a>,
    pub is_writable: bool,
    pub path: &'a [u8],
}

/// A record about processes or the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Map(Map<'a>),
    Comm {
        pid: i32,
        tid: i32,
        is_exec: bool,
        name: &'a [u8],
    },
    Fork {
        pid: i32,
        parent: i32,
        tid: i32,
        parent_tid: i32,
    },
    Exit {
        pid: i32,
        tid: i32,
    },
    /// Records that the kernel could not write.
    Lost(u64),
    /// Samples among them.
    LostSamples(u64),
    Throttle,
    KernelSymbol {
        start: u64,
        length: u32,
        is_bpf: bool,
        is_gone: bool,
        name: &'a [u8],
    },
    Other,
}

/// The build ID of a file, from the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId {
    pub mode: Mode,
    pub path: Vec<u8>,
    pub id: Vec<u8>,
}

impl RawRecord {
    /// The part of the machine that it belongs to.
    pub fn mode(&self) -> Mode {
        mode(self.misc)
    }

    /// Decodes a record that is no sample, whose last `trailer` bytes are those of all records.
    /// `None`: it is too short.
    pub fn decode(&self, trailer: usize) -> Option<Record<'_>> {
        let body = self.body.get(..self.body.len().checked_sub(trailer)?)?;
        let mut fields = Fields::new(body);
        Some(match self.kind {
            kind::MMAP | kind::MMAP2 => return self.map(fields),
            kind::COMM => Record::Comm {
                pid: fields.i32()?,
                tid: fields.i32()?,
                is_exec: self.misc & COMM_EXEC != 0,
                name: fields.text(),
            },
            kind::FORK => {
                let [pid, parent, tid, parent_tid] =
                    [fields.i32()?, fields.i32()?, fields.i32()?, fields.i32()?];
                Record::Fork { pid, parent, tid, parent_tid }
            }
            kind::EXIT => {
                let [pid, _, tid] = [fields.i32()?, fields.i32()?, fields.i32()?];
                Record::Exit { pid, tid }
            }
            kind::LOST => {
                fields.u64()?;
                Record::Lost(fields.u64()?)
            }
            // Not those that a filter of perf left out.
            kind::LOST_SAMPLES if self.misc & FILTERED == 0 => Record::LostSamples(fields.u64()?),
            kind::THROTTLE => Record::Throttle,
            kind::KSYMBOL => {
                let (start, length) = (fields.u64()?, fields.u32()?);
                let (is_bpf, is_gone) = (fields.u16()? == 1, fields.u16()? & 1 != 0);
                Record::KernelSymbol { start, length, is_bpf, is_gone, name: fields.text() }
            }
            _ => Record::Other,
        })
    }

    fn map<'a>(&self, mut fields: Fields<'a>) -> Option<Record<'a>> {
        let pid = fields.i32()?;
        fields.i32()?;
        let [start, length, offset] = [fields.u64()?, fields.u64()?, fields.u64()?];
        let mut file = MappedFile::Unknown;
        let (mut is_code, mut is_writable) = (self.misc & MAP_DATA == 0, false);
        if self.kind == kind::MMAP2 {
            file = self.mapped_file(Fields::new(fields.bytes(24)?))?;
            let protection = fields.u32()?;
            fields.u32()?;
            (is_code, is_writable) = (protection & EXECUTABLE != 0, protection & WRITABLE != 0);
        }
        let mode = self.mode();
        if !is_code && mode != Mode::Kernel {
            return Some(Record::Other);
        }
        let path = fields.text();
        Some(Record::Map(Map { mode, pid, start, length, offset, file, is_writable, path }))
    }

    fn mapped_file<'a>(&self, mut fields: Fields<'a>) -> Option<MappedFile<'a>> {
        if self.misc & MAP_BUILD_ID != 0 {
            let size = usize::from(fields.u8()?);
            fields.bytes(3)?;
            return Some(match fields.bytes(BUILD_ID as u64)?.get(..size) {
                Some(id @ [_, ..]) => MappedFile::BuildId(id),
                _ => MappedFile::Unknown,
            });
        }
        let (major, minor, inode) = (fields.u32()?, fields.u32()?, fields.u64()?);
        Some(match inode {
            0 => MappedFile::Unknown,
            _ => MappedFile::Inode { major, minor, inode },
        })
    }
}

fn mode(misc: u16) -> Mode {
    match misc & CPU_MODE {
        MODE_KERNEL => Mode::Kernel,
        MODE_USER => Mode::User,
        _ => Mode::Other,
    }
}

impl BuildId {
    /// Parses the body of a record `PERF_RECORD_HEADER_BUILD_ID`.
    pub fn parse(misc: u16, body: &[u8]) -> Option<BuildId> {
        let mut fields = Fields::new(body);
        fields.i32()?;
        let id = fields.bytes(BUILD_ID as u64)?;
        let size = fields.bytes(4)?[0];
        let size = if misc & BUILD_ID_SIZE != 0 { usize::from(size) } else { BUILD_ID };
        let mut id = id.get(..size)?.to_vec();
        if id.iter().all(|&byte| byte == 0) {
            // perf record -z --buildid-all
            id.clear();
        }
        Some(BuildId { mode: mode(misc), path: fields.text().to_vec(), id })
    }

    /// Parses the header's section of them.
    pub fn parse_all(section: &[u8]) -> Vec<BuildId> {
        let mut all = Vec::new();
        let mut fields = Fields::new(section);
        let mut next = || {
            let (_, misc, size) = (fields.u32()?, fields.u16()?, fields.u16()?);
            let body = fields.bytes(u64::from(size).checked_sub(8)?)?;
            Some((misc, body))
        };
        while let Some((misc, body)) = next() {
            all.extend(BuildId::parse(misc, body));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(kind: u32, misc: u16, parts: &[&[u8]]) -> RawRecord {
        RawRecord { kind, misc, body: parts.concat() }
    }

    #[test]
    fn mappings_have_a_build_id_or_an_inode() {
        let numbers: Vec<u8> =
            [0x1000u64, 0x2000, 0x3000].iter().flat_map(|n| n.to_le_bytes()).collect();
        let ids = [7i32.to_le_bytes(), 8i32.to_le_bytes()].concat();
        let flags = [5u32.to_le_bytes(), 2u32.to_le_bytes()].concat();
        let file = |misc, identity: &[u8]| {
            let record =
                raw(kind::MMAP2, misc, &[&ids, &numbers, identity, &flags, b"/bin/a\0\0", &[9; 8]]);
            match record.decode(8) {
                Some(Record::Map(map)) => {
                    assert_eq!((map.pid, map.start, map.length), (7, 0x1000, 0x2000));
                    assert_eq!((map.offset, map.path), (0x3000, &b"/bin/a"[..]));
                    format!("{:?}", map.file)
                }
                other => format!("{other:?}"),
            }
        };
        let inode = [&[1, 0, 0, 0, 2, 0, 0, 0, 3][..], &[0; 15]].concat();
        assert_eq!(file(MODE_USER, &inode), "Inode { major: 1, minor: 2, inode: 3 }");
        let id = [&[2, 0, 0, 0, 0xab, 0xcd][..], &[0; 18]].concat();
        assert_eq!(file(MODE_USER | MAP_BUILD_ID, &id), "BuildId([171, 205])");
        // Longer than its field.
        let id = [&[200, 0, 0, 0, 0xab, 0xcd][..], &[0; 18]].concat();
        assert_eq!(file(MODE_USER | MAP_BUILD_ID, &id), "Unknown");
    }

    #[test]
    fn short_records_are_none() {
        for kind in [kind::MMAP, kind::MMAP2, kind::COMM, kind::FORK, kind::EXIT, kind::KSYMBOL] {
            for length in 0..8 {
                assert_eq!(raw(kind, 0, &[&vec![0; length]]).decode(0), None, "{kind}, {length}");
            }
            assert_eq!(raw(kind, 0, &[&[0; 4]]).decode(8), None);
        }
    }

    #[test]
    fn build_ids_of_the_header_are_read_until_one_is_cut_off() {
        let mut section = Vec::new();
        for (size, path) in [(20, "/bin/a\0\0"), (16, "/bin/b\0\0"), (99, "/bin/c\0\0")] {
            section.extend(67u32.to_le_bytes());
            section.extend((MODE_USER | BUILD_ID_SIZE).to_le_bytes());
            section.extend((8 + 4 + 24 + path.len() as u16).to_le_bytes());
            section.extend((-1i32).to_le_bytes());
            section.extend([0xaa; 20]);
            section.extend([size, 0, 0, 0]);
            section.extend(path.as_bytes());
        }
        let read: Vec<_> = BuildId::parse_all(&section).into_iter().map(|b| b.id.len()).collect();
        assert_eq!(read, [20, 16]);
        assert!(BuildId::parse_all(&section[..40]).is_empty());
    }
}
