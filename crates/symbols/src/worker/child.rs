//! The symbolizing process: prof's own program under another name.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use super::wire::{self, BodyWriter, Inbox, MessageKind, WorkerRequest};
use crate::opener::{Opener, Place};
use crate::{elf, encoded_frames};
use sys::{mmap, os};

/// Program name that identifies a worker.
pub const NAME: &str = "prof-symbolizer";

/// Does the work if this process was started for it; else `None`.
pub fn run_if_started() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    if args.next()? != NAME {
        return None;
    }
    let bytes = args.next();
    let thread = std::thread::Builder::new().name("symbolize".into()).stack_size(elf::STACK);
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
    let parent = Parent(&socket);
    let mut inbox = Inbox::default();
    while let Some(message) = inbox.receive(&socket)? {
        let request = wire::parse_request(message).ok_or(io::ErrorKind::InvalidData)?;
        let done = |n: usize| {
            let mut body = BodyWriter::default();
            body.number(n as u32);
            let _ = wire::send(&socket, MessageKind::Done, &body.0, &[]);
        };
        let mut incomplete = None;
        let WorkerRequest { layers, addresses, options } = request;
        let resolved = elf::resolve(&layers, &addresses, &options, &parent, &done);
        let encoded = resolved.and_then(|resolved| {
            incomplete.clone_from(&resolved.incomplete);
            encoded_frames::encode(&addresses, &resolved)
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

/// The process that started this one, which opens files for it.
struct Parent<'a>(&'a UnixStream);

impl Opener for Parent<'_> {
    fn open(&self, place: &Place) -> io::Result<File> {
        wire::send(self.0, MessageKind::Open, &wire::place(place), &[])?;
        let reply = Inbox::default().receive(self.0)?;
        let file = reply.filter(|m| m.kind == MessageKind::Opened).and_then(|mut m| m.files.pop());
        file.map(File::from).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
