//! Profiles as bytes: one module a format, and the files they are in.

mod output;
pub mod pprof;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context, anyhow};

use profile::Profile;

pub use output::Output;

/// Reads a pprof file; `-` is standard input.
///
/// # Errors
///
/// One line that names the file, says what is wrong with it and, where there is one, what to do.
pub fn read_file(path: &Path) -> anyhow::Result<Profile> {
    if path == Path::new("-") {
        return pprof::read(io::stdin().lock()).context("standard input");
    }
    let shown = path.display();
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(anyhow!("cannot read {shown}: it is a directory; name a pprof file"));
    }
    pprof::read(file).map_err(|e| match e.is_malformed() {
        true => anyhow!("{shown}: {e}"),
        false => anyhow!("cannot read {shown}: {e}"),
    })
}

fn cannot_read(path: &Path, e: &io::Error) -> anyhow::Error {
    let shown = path.display();
    match e.kind() {
        ErrorKind::NotFound => anyhow!(
            "cannot read {shown}: no such file; record one with `prof record`, or name another"
        ),
        ErrorKind::PermissionDenied => anyhow!(
            "cannot read {shown}: permission denied; run as its owner, or ask for read access"
        ),
        _ => anyhow!("cannot read {shown}: {}", plain(e)),
    }
}

/// An I/O error without Rust's ` (os error N)`.
fn plain(e: &io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &Path) -> String {
        format!("{:#}", read_file(path).unwrap_err())
    }

    #[test]
    fn unreadable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("missing.pb.gz");
        assert!(
            error(&missing).starts_with(&format!("cannot read {}: no such", missing.display()))
        );
        assert!(error(dir.path()).contains("it is a directory"));
        let text = dir.path().join("text");
        std::fs::write(&text, "main;foo 3\n").unwrap();
        assert_eq!(
            error(&text),
            format!("{}: not a pprof file: it looks like text", text.display())
        );
        let below = text.join("below");
        assert!(error(&below).ends_with("not a directory"), "{}", error(&below));
    }

    #[test]
    fn a_written_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.pb.gz");
        let profile = profile::Builder::new(&[("cpu", "nanoseconds")]).finish(None);
        Output::create(&path).unwrap().write(&profile).unwrap();
        let read = read_file(&path).unwrap();
        assert_eq!(read.str(read.sample_types[0].kind), "cpu");
    }
}
