//! Profiles as bytes: one module for each file format, behind the trait [`Format`], and the list
//! [`FORMATS`]. [`read_file`] detects the format of a file.
//!
//! Lengths, indexes and sizes in the input are never trusted, and nothing here depends on how a
//! profile was recorded or is shown.

mod file;
pub mod pprof;

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};

use profile::Profile;

pub use file::{FileError, read_file};
pub use pprof::ReadError;

/// A file format of profiles.
pub trait Format: Sync {
    /// Its name in messages.
    fn name(&self) -> &'static str;

    /// True if a stream that begins with `head` (its first [`HEAD`] bytes, or all of a shorter one)
    /// has this format.
    fn detect(&self, head: &[u8]) -> bool;

    /// Reads a profile.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read, is not a complete and valid profile of this format, or would
    /// take unreasonably much memory.
    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError>;

    /// Reads a profile from a regular file, which does not wait for another process and so may be
    /// read by another thread.
    ///
    /// # Errors
    ///
    /// As [`Format::read`].
    fn read_file(&self, file: &mut File) -> Result<Profile, ReadError> {
        self.read(file)
    }

    /// Writes a profile.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()>;
}

/// All formats. The first that detects a stream reads it; a stream that none detects goes to the
/// first format, which reports the error.
pub const FORMATS: &[&dyn Format] = &[&pprof::Pprof];

/// Bytes of a stream that [`Format::detect`] receives.
pub const HEAD: usize = 64;

/// Reads a profile of any format.
///
/// # Errors
///
/// As [`Format::read`].
pub fn read(input: &mut dyn Read) -> Result<Profile, ReadError> {
    read_as(FORMATS, input)
}

/// The same from the beginning of a regular file.
fn read_regular_file(file: &mut File) -> Result<Profile, ReadError> {
    let head = head(file)?;
    file.rewind()?;
    format_of(FORMATS, &head).read_file(file)
}

fn read_as(formats: &[&dyn Format], input: &mut dyn Read) -> Result<Profile, ReadError> {
    let head = head(input)?;
    format_of(formats, &head).read(&mut Cursor::new(head).chain(input))
}

fn head(input: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    input.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn format_of<'f>(formats: &[&'f dyn Format], head: &[u8]) -> &'f dyn Format {
    *formats.iter().find(|format| format.detect(head)).unwrap_or(&formats[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name value` lines: a new format needs this much and its line in [`FORMATS`].
    struct LinesFormat;

    impl Format for LinesFormat {
        fn name(&self) -> &'static str {
            "lines"
        }

        fn detect(&self, head: &[u8]) -> bool {
            head.starts_with(b"lines\n")
        }

        fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError> {
            let mut text = String::new();
            input.read_to_string(&mut text)?;
            let mut builder = profile::Builder::new(&[("lines", "count")]);
            for line in text.lines().skip(1) {
                let name = builder.named_location(line);
                builder.add_stack(
                    &[name],
                    None,
                    profile::LabelSetId::EMPTY,
                    0,
                    &[(profile::Column(0), 1)],
                );
            }
            Ok(builder.finish(None))
        }

        fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
            writeln!(out, "lines")?;
            profile.functions.iter().try_for_each(|f| writeln!(out, "{}", profile.str(f.name)))
        }
    }

    #[test]
    fn a_stream_is_read_by_the_format_that_detects_it() {
        let formats: &[&dyn Format] = &[&pprof::Pprof, &LinesFormat];
        let profile = read_as(formats, &mut &b"lines\nmain\nwork\n"[..]).unwrap();
        for format in formats {
            let mut bytes = Vec::new();
            format.write(&profile, &mut bytes).unwrap();
            assert!(format.detect(&bytes[..bytes.len().min(HEAD)]), "{}", format.name());
            let again = read_as(formats, &mut &*bytes).unwrap();
            let names: Vec<_> = again.functions.iter().map(|f| again.str(f.name)).collect();
            assert_eq!(names, ["main", "work"], "{}", format.name());
        }
    }

    #[test]
    fn a_stream_without_a_format_is_explained() {
        let error = read(&mut &b"main;foo 3\n"[..]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "not a pprof file: these are collapsed stacks; flamegraph.pl or inferno-flamegraph draw \
             them, and https://www.speedscope.app shows them"
        );
        assert_eq!(read(&mut io::empty()).unwrap_err().to_string(), "the file is empty");
    }
}
