//! Profiles as bytes: one module for each file format, behind the trait [`Format`], and the list
//! [`FORMATS`]. [`read_file`] recognizes the format of a file by its contents.
//!
//! Lengths, indexes and sizes in the input are never trusted, and nothing here depends on how a
//! profile was recorded or is shown.

mod assembly;
pub mod callgrind;
pub mod collapsed;
mod error;
mod event_types;
mod file;
pub mod firefox;
mod json;
mod left_out;
pub mod legacy;
mod lines;
pub mod otlp;
pub mod perf_data;
pub mod perf_script;
pub mod pprof;
mod samples;
mod source;
pub mod speedscope;
pub mod stack_maps;
mod unpacked;
pub mod v8;

#[cfg(test)]
mod cut_files;

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use profile::Profile;
use sys::image::OtherPaths;

pub use error::ReadError;
pub use file::{FileError, open_file, read_file};
pub use left_out::{Contents, HeldLabels, HeldTypes, LeftOut, Part};

/// Writes a profile in a format.
///
/// # Errors
///
/// Those of the output.
pub type Writer = fn(&Profile, &WriteOptions, &mut dyn Write) -> io::Result<()>;

/// What a writer chooses of a profile.
#[derive(Clone, Copy, Debug)]
pub struct WriteOptions {
    /// Index of the sample type that is written by a format for a single one; that of the others is
    /// shown first.
    pub type_index: usize,
}

/// What a reader uses in addition to its input.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// Where binaries may be in addition to their recorded paths, for stacks that have to be
    /// unwound.
    pub binaries: Option<OtherPaths>,
}

/// A file format of profiles.
pub trait Format: Sync {
    /// Its name in options: a word.
    fn name(&self) -> &'static str;

    /// Its name in messages and help.
    fn title(&self) -> &'static str;

    /// Ends of the names of its files, without the dot; the usual one first. A format that is only
    /// read may have none.
    fn extensions(&self) -> &'static [&'static str];

    /// True if a stream that begins with `head` (its first [`HEAD`] bytes, unpacked, or all of a
    /// shorter one) has this format.
    fn detect(&self, head: &[u8]) -> bool;

    /// Reads a profile; the stream may be compressed with gzip.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read, is not a complete and valid profile of this format, or would
    /// take unreasonably much memory.
    fn read(&self, input: &mut dyn Read) -> Result<Profile, ReadError>;

    /// The same with options, which formats with copies of stacks have a use for.
    ///
    /// # Errors
    ///
    /// As [`Format::read`].
    fn read_with(&self, input: &mut dyn Read, _: &ReadOptions) -> Result<Profile, ReadError> {
        self.read(input)
    }

    /// Reads a profile from a regular file, which does not wait for another process and so may be
    /// read by another thread.
    ///
    /// # Errors
    ///
    /// As [`Format::read`].
    fn read_file(&self, file: &mut File, options: &ReadOptions) -> Result<Profile, ReadError> {
        self.read_with(file, options)
    }

    /// What frames without a function are. Names of addresses are looked up by who reads the
    /// profile, as those of a recording.
    fn unnamed_frames(&self) -> UnnamedFrames {
        UnnamedFrames::Unknown
    }

    /// True if its files are text, which a terminal may show.
    fn is_text(&self) -> bool {
        true
    }

    /// The function that writes it; `None`: prof only reads it.
    fn writer(&self) -> Option<Writer> {
        None
    }

    /// What a written file holds of a profile.
    fn contents(&self) -> Contents {
        Contents::ALL
    }
}

/// What the frames without a function are, in a profile that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnnamedFrames {
    /// Whatever wrote the file did not know their names, or prof has looked them up before.
    Unknown,
    /// Addresses in the mappings of the profile.
    Addresses,
    /// Addresses relative to the lowest one of the segments of their binary, whose mappings begin
    /// at 0.
    ImageAddresses,
}

/// A profile, and the format that it had.
pub struct Opened {
    /// The profile.
    pub profile: Profile,
    /// The format.
    pub format: &'static dyn Format,
}

/// All formats. The first that detects a stream reads it; of a stream that none detects, the name
/// decides, and else the last format, which reports the error.
pub const FORMATS: &[&dyn Format] = &[
    &perf_data::PerfData,
    &legacy::Cpu,
    &legacy::Heap,
    &legacy::GoCounts,
    &legacy::Threads,
    &legacy::Java,
    &legacy::Contention,
    &legacy::Jemalloc,
    &otlp::OtlpJson,
    &speedscope::Speedscope,
    &firefox::Firefox,
    &v8::CpuProfile,
    &v8::HeapProfile,
    &callgrind::Callgrind,
    &perf_script::PerfScript,
    &stack_maps::Bpftrace,
    &stack_maps::Dtrace,
    &collapsed::Collapsed,
    &otlp::Otlp,
    &pprof::Pprof,
];

/// Bytes of a stream that [`Format::detect`] receives.
pub const HEAD: usize = 16 << 10;

/// Reads a profile of any format.
///
/// # Errors
///
/// As [`Format::read`].
pub fn read(input: &mut dyn Read) -> Result<Profile, ReadError> {
    read_as(FORMATS, input, &ReadOptions::default()).map(|opened| opened.profile)
}

/// The formats that prof writes.
pub fn written() -> impl Iterator<Item = &'static dyn Format> {
    FORMATS.iter().copied().filter(|format| format.writer().is_some())
}

/// The format of files with such a name.
pub fn format_of_name(path: &Path) -> Option<&'static dyn Format> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let ends_with =
        |extension: &&str| name.strip_suffix(*extension).is_some_and(|stem| stem.ends_with('.'));
    FORMATS.iter().copied().find(|format| format.extensions().iter().any(ends_with))
}

/// The format of a file that begins with `head` (its first [`HEAD`] bytes as they are, or all of a
/// shorter one), if one detects it.
pub fn format_of_head(head: &[u8]) -> Option<&'static dyn Format> {
    detected(FORMATS, head)
}

/// The format of the regular file `path`; the next byte is its first again.
fn format_of_file(file: &mut File, path: &Path) -> Result<&'static dyn Format, ReadError> {
    let head = head(file)?;
    file.rewind()?;
    let format = detected(FORMATS, &head).or_else(|| format_of_name(&content_name(path)));
    Ok(format.unwrap_or(&pprof::Pprof))
}

/// The name of a file without the end of a compressed one.
fn content_name(path: &Path) -> PathBuf {
    let is_gzip = path.extension().is_some_and(|extension| extension == "gz");
    if is_gzip { path.with_extension("") } else { path.to_owned() }
}

/// Reads a profile of one of these formats; if none detects it, pprof reports the error.
fn read_as(
    formats: &[&'static dyn Format],
    input: &mut dyn Read,
    options: &ReadOptions,
) -> Result<Opened, ReadError> {
    let head = head(input)?;
    let format = detected(formats, &head).unwrap_or(&pprof::Pprof);
    let profile = format.read_with(&mut Cursor::new(head).chain(input), options)?;
    Ok(Opened { profile, format })
}

/// The first bytes of a stream, as they are.
fn head(input: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD);
    input.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The format of a stream that begins with `head`.
fn detected(formats: &[&'static dyn Format], head: &[u8]) -> Option<&'static dyn Format> {
    let content = unpacked::head(head);
    formats.iter().copied().find(|format| format.detect(&content))
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

        fn title(&self) -> &'static str {
            "lines"
        }

        fn extensions(&self) -> &'static [&'static str] {
            &["lines"]
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

        fn writer(&self) -> Option<Writer> {
            Some(|profile, _, out| {
                writeln!(out, "lines")?;
                profile.functions.iter().try_for_each(|f| writeln!(out, "{}", profile.str(f.name)))
            })
        }
    }

    fn read(formats: &[&'static dyn Format], mut bytes: &[u8]) -> Profile {
        read_as(formats, &mut bytes, &ReadOptions::default()).unwrap().profile
    }

    #[test]
    fn a_stream_is_read_by_the_format_that_detects_it() {
        let formats: &[&'static dyn Format] = &[&LinesFormat, &pprof::Pprof];
        let profile = read(formats, b"lines\nmain\nwork\n");
        for format in formats {
            let mut bytes = Vec::new();
            format.writer().unwrap()(&profile, &WriteOptions { type_index: 0 }, &mut bytes)
                .unwrap();
            let found = detected(formats, &bytes[..bytes.len().min(HEAD)]).unwrap();
            assert_eq!(found.name(), format.name());
            let again = read(formats, &bytes);
            let names: Vec<_> = again.functions.iter().map(|f| again.str(f.name)).collect();
            assert_eq!(names, ["main", "work"], "{}", format.name());
        }
    }

    #[test]
    fn a_stream_without_a_format_is_explained() {
        let error = super::read(&mut &b"FLR\0\0\x02\0\0"[..]).unwrap_err().to_string();
        let start = "not in a format that prof reads: it is a Java flight recording (JFR); ";
        assert!(error.starts_with(start), "{error}");
        assert_eq!(super::read(&mut io::empty()).unwrap_err().to_string(), "the file is empty");
    }

    #[test]
    fn names_and_extensions_are_those_of_a_single_format() {
        let names: Vec<_> = FORMATS.iter().map(|format| format.name()).collect();
        assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1));
        for format in FORMATS {
            for extension in format.extensions() {
                let found = format_of_name(Path::new(&format!("a/b.{extension}"))).unwrap();
                assert_eq!(found.name(), format.name());
            }
        }
        assert!(format_of_name(Path::new("folded")).is_none());
    }

    #[test]
    fn contents_decide_before_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("named.pb.gz");
        std::fs::write(&path, "main;work 3\n").unwrap();
        assert_eq!(read_file(&path).unwrap().total(0), 3);
        // A single frame could be any text.
        let path = directory.path().join("named.folded");
        std::fs::write(&path, "main 4\n").unwrap();
        assert_eq!(read_file(&path).unwrap().total(0), 4);
        assert!(super::read(&mut &b"main 4\n"[..]).is_err());
    }
}
