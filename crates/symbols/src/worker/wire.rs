//! Messages between prof and its symbolizing process: a length, a kind and a body of little-endian
//! numbers and counted bytes. Received messages are validated; a malformed one counts as missing.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::SymbolOptions;
use crate::opener::{Place, Side};
use crate::source::Layer;
use profile::Cause;
use sys::os;

/// Longest message.
const MAX_LENGTH: u32 = 1 << 30;

/// Kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// To the worker: addresses in files, which come with it.
    Request = 1,
    /// From it: number of further addresses processed.
    Done,
    /// From it: name of a file to open.
    Open,
    /// To it: that file, if it could be opened.
    Opened,
    /// From it: the cause of incomplete input, before the results.
    Incomplete,
    /// From it: the results ([`crate::encoded_frames`]).
    Frames,
    /// From it: the cause of a failure.
    Failure,
}

/// A received message.
pub struct Message {
    pub kind: MessageKind,
    pub body: Vec<u8>,
    pub files: Vec<OwnedFd>,
}

/// Sends a message with open files.
pub fn send(
    socket: &UnixStream,
    kind: MessageKind,
    body: &[u8],
    files: &[RawFd],
) -> io::Result<()> {
    let length = u32::try_from(body.len()).ok().filter(|&n| n <= MAX_LENGTH);
    let length = length.ok_or(io::ErrorKind::InvalidInput)?;
    let mut header = [0; 5];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4] = kind as u8;
    if os::send_files(socket.as_fd(), &header, files)? != header.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    io::Write::write_all(&mut &*socket, body)
}

/// Received data of a socket, in parts if it has a time limit for reading.
#[derive(Default)]
pub struct Inbox {
    header: Vec<u8>,
    body: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Inbox {
    /// The next message; `None` if the other end is closed.
    ///
    /// # Errors
    ///
    /// `WouldBlock` at the time limit: received data is kept. Any other error is final.
    pub fn receive(&mut self, socket: &UnixStream) -> io::Result<Option<Message>> {
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        while self.header.len() < 5 {
            let mut part = [0; 5];
            let left = 5 - self.header.len();
            let n = os::receive_files(socket.as_fd(), &mut part[..left], &mut self.files)?;
            if n == 0 {
                return Ok(None);
            }
            self.header.extend_from_slice(&part[..n]);
        }
        let length = u32::from_le_bytes(*self.header.first_chunk().ok_or_else(bad)?);
        let kind = kind(self.header[4]).filter(|_| length <= MAX_LENGTH).ok_or_else(bad)?;
        while self.body.len() < length as usize {
            let mut part = [0; 1 << 16];
            let left = (length as usize - self.body.len()).min(part.len());
            let n = io::Read::read(&mut &*socket, &mut part[..left])?;
            if n == 0 {
                return Ok(None);
            }
            self.body.extend_from_slice(&part[..n]);
        }
        self.header.clear();
        let body = std::mem::take(&mut self.body);
        let files = std::mem::take(&mut self.files);
        Ok(Some(Message { kind, body, files }))
    }
}

fn kind(byte: u8) -> Option<MessageKind> {
    let all = [
        MessageKind::Request,
        MessageKind::Done,
        MessageKind::Open,
        MessageKind::Opened,
        MessageKind::Incomplete,
        MessageKind::Frames,
        MessageKind::Failure,
    ];
    all.into_iter().find(|&kind| kind as u8 == byte)
}

/// Encodes a body.
#[derive(Default)]
pub struct BodyWriter(pub Vec<u8>);

impl BodyWriter {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub fn number(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    fn place(&mut self, place: &Place) {
        self.byte(u8::from(place.side == Side::Process));
        self.path(&place.path);
    }
}

/// Decodes a body.
pub struct BodyReader<'a>(pub &'a [u8]);

impl<'a> BodyReader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()? as usize;
        self.take(length)
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(PathBuf::from(OsStr::from_bytes(self.bytes()?)))
    }

    fn place(&mut self) -> Option<Place> {
        let side = if self.byte()? == 0 { Side::Own } else { Side::Process };
        Some(Place { side, path: self.path()? })
    }
}

/// Addresses in the files of layers.
pub struct WorkerRequest {
    pub layers: Vec<Layer>,
    pub addresses: Vec<u64>,
    pub options: SymbolOptions,
}

/// Body of a request, and its open files.
pub fn request(
    layers: &[Layer],
    addresses: &[u64],
    options: &SymbolOptions,
) -> (Vec<u8>, Vec<RawFd>) {
    let mut out = BodyWriter::default();
    let mut files = Vec::new();
    out.byte(u8::from(options.inlines) | u8::from(options.demangle) << 1);
    out.number(options.symbol_path.len() as u32);
    options.symbol_path.iter().for_each(|path| out.path(path));
    out.number(layers.len() as u32);
    for layer in layers {
        out.place(&layer.place);
        let flags = [layer.debug_info, layer.split, layer.unpacked, layer.shared.is_some()];
        flags.map(u8::from).into_iter().for_each(|flag| out.byte(flag));
        files.push(layer.file.as_raw_fd());
        files.extend(layer.shared.as_ref().map(|file| file.as_raw_fd()));
    }
    out.number(addresses.len() as u32);
    addresses.iter().for_each(|address| out.0.extend_from_slice(&address.to_le_bytes()));
    (out.0, files)
}

/// Decodes a request.
pub fn parse_request(message: Message) -> Option<WorkerRequest> {
    let mut body = BodyReader(&message.body);
    let mut files = message.files.into_iter().map(|fd| Arc::new(File::from(fd)));
    let flags = body.byte()?;
    let paths = body.number()?;
    let symbol_path = (0..paths).map(|_| body.path()).collect::<Option<Vec<_>>>()?;
    let count = body.number()?;
    let mut layers = Vec::new();
    for _ in 0..count {
        let place = body.place()?;
        let mut flag = || Some(body.byte()? != 0);
        let debug_info = flag()?;
        let split = flag()?;
        let unpacked = flag()?;
        let shared = flag()?;
        let file = files.next()?;
        let shared = if shared { Some(files.next()?) } else { None };
        layers.push(Layer { place, file, debug_info, split, shared, unpacked });
    }
    let count = body.number()?;
    let addresses = (0..count).map(|_| body.long()).collect::<Option<Vec<_>>>()?;
    let inlines = flags & 1 != 0;
    let demangle = flags & 2 != 0;
    let options = SymbolOptions { inlines, demangle, symbol_path, ..SymbolOptions::default() };
    Some(WorkerRequest { layers, addresses, options })
}

/// Body of a request for a file.
pub fn place(place: &Place) -> Vec<u8> {
    let mut out = BodyWriter::default();
    out.place(place);
    out.0
}

/// Decodes a request for a file.
pub fn parse_place(body: &[u8]) -> Option<Place> {
    BodyReader(body).place()
}

/// Decodes a cause: its code, as in files.
pub fn parse_cause(body: &[u8]) -> Option<Cause> {
    Some(Cause::from_code(std::str::from_utf8(body).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_go_with_a_request() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"in it").unwrap();
        let place = Place { side: Side::Process, path: "/x/prog".into() };
        let shared = Some(Arc::new(file.try_clone().unwrap()));
        let file = Arc::new(file);
        let debug_info = true;
        let split = false;
        let unpacked = false;
        let layer = Layer { place, file, debug_info, split, shared, unpacked };
        let options = SymbolOptions {
            inlines: false,
            symbol_path: vec!["/s".into()],
            ..SymbolOptions::default()
        };
        let (body, files) = request(std::slice::from_ref(&layer), &[1, 1 << 60], &options);
        send(&ours, MessageKind::Request, &body, &files).unwrap();
        drop(ours);
        let mut inbox = Inbox::default();
        let message = inbox.receive(&theirs).unwrap().unwrap();
        assert_eq!(message.kind, MessageKind::Request);
        let got = parse_request(message).unwrap();
        assert_eq!((got.addresses, got.options.inlines), (vec![1, 1 << 60], false));
        assert_eq!(got.options.symbol_path, options.symbol_path);
        assert_eq!(got.layers[0].place, layer.place);
        for file in [&got.layers[0].file, got.layers[0].shared.as_ref().unwrap()] {
            let mut text = [0; 5];
            std::os::unix::fs::FileExt::read_exact_at(&**file, &mut text, 0).unwrap();
            assert_eq!(&text, b"in it");
        }
        assert!(inbox.receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn a_place_keeps_its_side() {
        for side in [Side::Own, Side::Process] {
            let sent = Place { side, path: "/x/a.dwo".into() };
            assert_eq!(parse_place(&place(&sent)), Some(sent));
        }
        assert_eq!(parse_place(&[]), None);
    }

    proptest! {
        #[test]
        fn damaged_bodies_are_read_without_panic(at in 0usize..60, to in any::<u8>(), cut in 0usize..60) {
            let options = SymbolOptions { symbol_path: vec!["/s".into()], ..SymbolOptions::default() };
            let (mut body, _) = request(&[], &[1, 2, 3], &options);
            if let Some(byte) = body.get_mut(at) { *byte = to; }
            body.truncate(cut);
            let _ = parse_cause(&body);
            let _ = parse_place(&body);
            let _ = parse_request(Message { kind: MessageKind::Request, body, files: Vec::new() });
        }
    }
}
