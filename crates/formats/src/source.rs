//! The source of a profile's bytes: a stream, gzip or not, or a file that another thread unpacks
//! while the bytes before are decoded.

use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor as IoCursor, Read};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use flate2::bufread::MultiGzDecoder;

/// Bytes per read; a piece stays in the CPU's cache until decoded.
pub(crate) const PIECE: usize = 128 << 10;

/// Bytes of a file from which on a thread of its own pays off.
const LARGE: u64 = 256 << 10;

/// Unpacked pieces that wait to be decoded.
const WAITING: usize = 4;

/// The first bytes of gzip.
pub(crate) const GZIP: [u8; 2] = [0x1f, 0x8b];

pub(crate) struct CountingReader<R> {
    inner: R,
    count: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.count += n as u64;
        Ok(n)
    }
}

type Raw<R> = BufReader<CountingReader<R>>;

fn raw<R: Read>(inner: R) -> Raw<R> {
    BufReader::with_capacity(PIECE / 2, CountingReader { inner, count: 0 })
}

type Stream<'r> = Raw<Chain<IoCursor<Vec<u8>>, &'r mut dyn Read>>;

pub(crate) enum InputSource<'r> {
    Plain(Stream<'r>),
    Gzip(Box<MultiGzDecoder<Stream<'r>>>),
    Ahead(Ahead),
}

impl<'r> InputSource<'r> {
    /// The stream that begins with `magic` and continues with `rest`.
    pub(crate) fn new(magic: Vec<u8>, rest: &'r mut dyn Read) -> InputSource<'r> {
        let gzip = magic.starts_with(&GZIP);
        let raw = raw(IoCursor::new(magic).chain(rest));
        if gzip {
            InputSource::Gzip(Box::new(MultiGzDecoder::new(raw)))
        } else {
            InputSource::Plain(raw)
        }
    }

    /// Bytes of the file read so far.
    pub(crate) fn file_bytes(&self) -> u64 {
        match self {
            InputSource::Plain(r) => r.get_ref().count,
            InputSource::Gzip(r) => r.get_ref().get_ref().count,
            InputSource::Ahead(r) => r.piece.file_bytes,
        }
    }

    pub(crate) fn is_gzip(&self) -> bool {
        !matches!(self, InputSource::Plain(_))
    }

    pub(crate) fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            InputSource::Plain(r) => r.read(out),
            InputSource::Gzip(r) => r.read(out),
            InputSource::Ahead(r) => r.read(out),
        }
    }
}

/// Unpacked bytes.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    /// How many of `bytes` are unpacked; none: the end.
    length: usize,
    /// Bytes of the file read up to here.
    file_bytes: u64,
}

/// A file that another thread unpacks. The thread ends with the file, or after this was dropped.
pub(crate) struct Ahead {
    pieces: Receiver<io::Result<Piece>>,
    /// Memory of pieces for the thread to use again.
    used: Sender<Vec<u8>>,
    piece: Piece,
    /// Bytes of `piece` that were read.
    position: usize,
}

impl Ahead {
    /// Starts to unpack a file from its beginning. `None`: it is not a large regular file of gzip,
    /// or there is no other CPU or thread for it.
    pub(crate) fn start(file: &File) -> Option<Ahead> {
        let mut magic = [0; GZIP.len()];
        let is_large = file.metadata().is_ok_and(|m| m.is_file() && m.len() >= LARGE);
        let is_gzip = is_large && file.read_exact_at(&mut magic, 0).is_ok() && magic == GZIP;
        if !is_gzip || thread::available_parallelism().map_or(1, usize::from) < 2 {
            return None;
        }
        let file = file.try_clone().ok()?;
        let (sender, pieces) = sync_channel(WAITING);
        let (used, free) = channel();
        let unpack = move || unpack(file, &sender, &free);
        thread::Builder::new().name("unpack".to_owned()).spawn(unpack).ok()?;
        Some(Ahead { pieces, used, piece: Piece::default(), position: 0 })
    }

    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.position == self.piece.length {
            let ended = |_| io::Error::other("the thread that unpacks it has ended");
            let next = self.pieces.recv().map_err(ended)??;
            let last = std::mem::replace(&mut self.piece, next);
            self.position = 0;
            self.used.send(last.bytes).ok();
        }
        let rest = &self.piece.bytes[self.position..self.piece.length];
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        self.position += length;
        Ok(length)
    }
}

/// Unpacks the file until its end, an error, or the end of the receiver.
fn unpack(file: File, pieces: &SyncSender<io::Result<Piece>>, free: &Receiver<Vec<u8>>) {
    let mut gzip = MultiGzDecoder::new(raw(file));
    loop {
        let mut bytes = free.try_recv().unwrap_or_default();
        bytes.resize(PIECE, 0);
        let read = loop {
            match gzip.read(&mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let file_bytes = gzip.get_ref().get_ref().count;
        let goes_on = matches!(read, Ok(1..));
        let piece = read.map(|length| Piece { bytes, length, file_bytes });
        if pieces.send(piece).is_err() || !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::pprof::{read, read_file};

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file
    }

    /// A profile whose strings compress badly.
    fn packed() -> Vec<u8> {
        let mut b = profile::Builder::new(&[("samples", "count")]);
        let mut number = 1u64;
        for _ in 0..40_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            b.profile.strings.intern(&format!("{number:x}"));
        }
        let mut bytes = Vec::new();
        crate::pprof::write(&b.finish(None), &mut bytes).unwrap();
        assert!(bytes.len() as u64 > LARGE, "{}", bytes.len());
        bytes
    }

    #[test]
    fn a_file_is_read_ahead_as_a_stream_is_read() {
        let bytes = packed();
        let ahead = read_file(&mut file(&bytes)).unwrap();
        let stream = read(&bytes[..]).unwrap();
        assert!(ahead.strings.iter().eq(stream.strings.iter()));
        assert_eq!(ahead.sample_types, stream.sample_types);
    }

    #[test]
    fn errors_are_those_of_a_stream() {
        let bytes = packed();
        let mut damaged = bytes.clone();
        damaged[LARGE as usize..][..64].fill(0xff);
        let mut other = GzEncoder::new(Vec::new(), Compression::none());
        other.write_all(&vec![b'x'; 1 << 20]).unwrap();
        let twice = [&bytes[..], &bytes[..bytes.len() - 9]].concat();
        let cut = bytes[..bytes.len() - 9].to_vec();
        for bytes in [damaged, cut, twice, other.finish().unwrap()] {
            let ahead = read_file(&mut file(&bytes)).unwrap_err().to_string();
            assert_eq!(ahead, read(&bytes[..]).unwrap_err().to_string());
        }
    }

    #[test]
    fn small_and_plain_files_need_no_thread() {
        let small = GzEncoder::new(Vec::new(), Compression::best()).finish().unwrap();
        assert!(Ahead::start(&file(&small)).is_none());
        assert!(Ahead::start(&file(&vec![0x0a; 1 << 20])).is_none());
    }
}
