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

use super::wire::{self, Inbox, Kind, Writer};
use crate::elf;
use crate::work::STACK;
use sys::os;
use sys::{foreign, mmap};

/// The name by which the program knows that it is a worker.
pub const NAME: &str = "prof-symbolizer";

/// Where this process asks for files, if it is a worker.
static PARENT: OnceLock<Mutex<UnixStream>> = OnceLock::new();

/// Does the work if this process was started for it; `None`: it was not.
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
    mmap::outlive_cut_files();
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let _ = PARENT.set(Mutex::new(socket.try_clone()?));
    let mut inbox = Inbox::default();
    while let Some(message) = inbox.receive(&socket)? {
        let question = wire::asked(message).ok_or(io::ErrorKind::InvalidData)?;
        let done = |n: usize| {
            let mut body = Writer::default();
            body.number(n as u32);
            let _ = wire::send(&socket, Kind::Done, &body.0, &[]);
        };
        match elf::resolve(&question.layers, &question.addresses, &question.options, &done) {
            Ok(answers) => wire::send(&socket, Kind::Answer, &wire::answers(&answers), &[])?,
            Err(why) => wire::send(&socket, Kind::Failure, &wire::failure(&why), &[])?,
        }
    }
    Ok(())
}

/// Opens a file that debug information names: a worker lets its parent do that.
///
/// # Errors
///
/// It is not there, or is refused.
pub fn open(path: &Path) -> io::Result<File> {
    let Some(parent) = PARENT.get() else { return foreign::open(path) };
    let socket = parent.lock().unwrap_or_else(|e| e.into_inner());
    wire::send(&socket, Kind::Open, path.as_os_str().as_bytes(), &[])?;
    let answer = Inbox::default().receive(&socket)?;
    let file = answer.filter(|m| m.kind == Kind::Opened).and_then(|mut m| m.files.pop());
    file.map(File::from).ok_or_else(|| io::ErrorKind::NotFound.into())
}
