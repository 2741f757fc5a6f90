//! The symbolizing process: prof's own program under another name.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock};

use super::wire::{self, BodyWriter, Inbox, MessageKind};
use crate::batch::STACK;
use crate::{elf, encoded_frames};
use sys::os;
use sys::{foreign, mmap};

/// Program name that identifies a worker.
pub const NAME: &str = "prof-symbolizer";

/// Socket for requesting files, if this process is a worker.
static PARENT: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// Does the work if this process was started for it; else `None`.
pub fn run_if_started() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    if args.next()? != NAME {
        return None;
    }
    let bytes = args.next();
    let thread = std::thread::Builder::new().name("symbolize".into()).stack_size(STACK);
    let work = thread.spawn(move || work(bytes));
    let done = work.ok()?.join().ok()?;
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn work(bytes: Option<OsString>) -> io::Result<()> {
    let bytes = bytes.and_then(|text| text.to_str()?.parse().ok());
    os::confine(bytes.ok_or(io::ErrorKind::InvalidInput)?);
    os::exit_without_memory();
    mmap::outlive_cut_files();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let _ = PARENT.set(Mutex::new(socket.try_clone()?));
    let mut inbox = Inbox::default();
    while let Some(message) = inbox.receive(&socket)? {
        let request = wire::parse_request(message).ok_or(io::ErrorKind::InvalidData)?;
        let done = |n: usize| {
            let mut body = BodyWriter::default();
            body.number(n as u32);
            let _ = wire::send(&socket, MessageKind::Done, &body.0, &[]);
        };
        let mut incomplete = None;
        let resolved = elf::resolve(&request.layers, &request.addresses, &request.options, &done);
        let encoded = resolved.and_then(|resolved| {
            incomplete.clone_from(&resolved.incomplete);
            encoded_frames::encode(&request.addresses, &resolved)
        });
        match encoded {
            Ok(frames) => {
                if let Some(why) = incomplete {
                    wire::send(&socket, MessageKind::Incomplete, why.code().as_bytes(), &[])?;
                }
                wire::send(&socket, MessageKind::Frames, &frames, &[])?;
            }
            Err(why) => wire::send(&socket, MessageKind::Failure, why.code().as_bytes(), &[])?,
        }
    }
    Ok(())
}

/// Opens a file that debug information names; in a worker, through its parent.
///
/// # Errors
///
/// It does not exist, or is refused.
pub fn open(path: &Path) -> io::Result<File> {
    let Some(parent) = PARENT.get() else { return foreign::open(path) };
    let socket = parent.lock().unwrap_or_else(|e| e.into_inner());
    wire::send(&socket, MessageKind::Open, path.as_os_str().as_bytes(), &[])?;
    let reply = Inbox::default().receive(&socket)?;
    let file = reply.filter(|m| m.kind == MessageKind::Opened).and_then(|mut m| m.files.pop());
    file.map(File::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}
