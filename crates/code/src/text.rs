//! Text of source files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sys::foreign;

/// Largest source file that is read, in bytes.
pub const MAX_SIZE: u64 = 16 << 20;

/// Most parts of a path that are tried below a directory of the user.
const MAX_PARTS: usize = 64;

/// Places of source files.
#[derive(Clone, Debug, Default)]
pub struct SourcePaths {
    /// Directories with source.
    pub directories: Vec<PathBuf>,
    /// Prefixes that are removed from recorded paths.
    pub trim: Vec<String>,
}

/// The cause of a missing text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoText {
    /// The profile has no name of a file.
    Unnamed,
    /// No file was found.
    Missing,
    /// It is a directory, a device or a FIFO, or on a virtual file system.
    NotRegular,
    /// It is larger than 16 MiB.
    TooLarge,
    /// It cannot be read; the system's message.
    Unreadable(String),
}

impl NoText {
    /// Its name in JSON.
    pub fn code(&self) -> &'static str {
        match self {
            NoText::Unnamed => "unnamed",
            NoText::Missing => "missing",
            NoText::NotRegular => "not_regular",
            NoText::TooLarge => "too_large",
            NoText::Unreadable(_) => "unreadable",
        }
    }
}

/// The origin of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File,
    /// Debug information of the binary.
    Embedded,
    /// A debuginfod server, or the cache of its files.
    Debuginfod,
}

impl Origin {
    /// Its name in JSON.
    pub fn code(self) -> &'static str {
        match self {
            Origin::File => "file",
            Origin::Embedded => "embedded",
            Origin::Debuginfod => "debuginfod",
        }
    }
}

/// Text of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The file that was read.
    pub path: PathBuf,
    /// Its origin.
    pub origin: Origin,
    /// The last modification of a file; text of the build has none.
    pub modified: Option<SystemTime>,
    /// Its text. Bytes that are not UTF-8 are replaced.
    text: String,
    /// Limits of its lines.
    ends: Vec<u32>,
}

impl SourceText {
    /// Text of the build, from the file at `path`.
    pub fn new(path: &Path, origin: Origin, text: &[u8]) -> SourceText {
        let text = String::from_utf8_lossy(text).into_owned();
        let mut ends: Vec<u32> = text.match_indices('\n').map(|(at, _)| at as u32).collect();
        if !text.is_empty() && !text.ends_with('\n') {
            ends.push(text.len() as u32);
        }
        ends.shrink_to_fit();
        SourceText { path: path.to_owned(), origin, modified: None, text, ends }
    }

    /// Text of the build in an open file.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is too large.
    pub fn read(path: &Path, origin: Origin, file: File) -> Result<SourceText, NoText> {
        let unreadable = |error: io::Error| NoText::Unreadable(error.to_string());
        let mut bytes = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_SIZE {
            return Err(NoText::TooLarge);
        }
        Ok(SourceText::new(path, origin, &bytes))
    }

    /// Finds and reads the file with a recorded path: below the user's directories by the path
    /// without a prefix to trim, by the path itself, and below the directories by its last parts,
    /// as many as possible.
    ///
    /// # Errors
    ///
    /// There is none, or it is not an ordinary file of a reasonable size.
    pub fn find(recorded: &str, paths: &SourcePaths) -> Result<SourceText, NoText> {
        if recorded.is_empty() {
            return Err(NoText::Unnamed);
        }
        let mut why = NoText::Missing;
        for path in candidates(recorded, paths) {
            match read(&path) {
                Ok(text) => return Ok(text),
                Err(NoText::Missing) => {}
                // The cause of an existing file is more specific than that of a missing one.
                Err(other) if why == NoText::Missing => why = other,
                Err(_) => {}
            }
        }
        Err(why)
    }

    /// A line by its number, from 1, without its end.
    pub fn line(&self, number: i64) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize + 1);
        let line = &self.text[start..end];
        Some(line.strip_suffix('\r').unwrap_or(line))
    }

    /// Number of its lines.
    pub fn line_count(&self) -> usize {
        self.ends.len()
    }

    /// All lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        (1..).map_while(|number| self.line(number))
    }

    /// Bytes of memory.
    pub fn size(&self) -> usize {
        self.text.len() + self.ends.len() * size_of::<u32>()
    }

    /// True if it was modified after `other`.
    pub fn is_newer_than(&self, other: SystemTime) -> bool {
        self.modified.is_some_and(|modified| modified > other)
    }
}

/// The time of nanoseconds since the Unix epoch; `None` for 0 and below.
pub fn time(nanos: i64) -> Option<SystemTime> {
    let nanos = u64::try_from(nanos).ok().filter(|&nanos| nanos > 0)?;
    UNIX_EPOCH.checked_add(Duration::from_nanos(nanos))
}

/// Paths where a file may be, best first.
fn candidates(recorded: &str, paths: &SourcePaths) -> Vec<PathBuf> {
    let trimmed = paths.trim.iter().find_map(|prefix| {
        let rest = recorded.strip_prefix(prefix.as_str())?;
        let whole = prefix.ends_with('/') || rest.starts_with('/');
        whole.then(|| rest.trim_start_matches('/'))
    });
    let rest = trimmed.unwrap_or(recorded);
    // The name may come from an untrusted file: it must not lead out of a directory.
    let inside = !rest.split('/').any(|part| part == "..");
    let parts: Vec<&str> =
        rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let parts = if inside { parts.as_slice() } else { &[] };
    let below = |from: usize| {
        let rest: PathBuf = parts[from..].iter().collect();
        paths.directories.iter().map(move |directory| directory.join(&rest))
    };
    let mut found = Vec::new();
    if trimmed.is_some() && !parts.is_empty() {
        found.extend(below(0));
        found.push(parts.iter().collect());
    }
    found.push(PathBuf::from(recorded));
    for from in parts.len().saturating_sub(MAX_PARTS)..parts.len() {
        found.extend(below(from));
    }
    found
}

fn read(path: &Path) -> Result<SourceText, NoText> {
    let why = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            NoText::Missing
        }
        _ if foreign::is_refused(&error) => NoText::NotRegular,
        _ => NoText::Unreadable(error.to_string()),
    };
    let resolved = foreign::resolve(path).map_err(why)?;
    let file = resolved.open().map_err(why)?;
    if resolved.metadata.len() > MAX_SIZE {
        return Err(NoText::TooLarge);
    }
    let modified = resolved.metadata.modified().ok();
    Ok(SourceText { modified, ..SourceText::read(path, Origin::File, file)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("src/deep")).unwrap();
        fs::write(directory.path().join("src/deep/a.c"), b"one\r\ntwo\n\xff\n").unwrap();
        directory
    }

    #[test]
    fn a_file_is_found_by_its_path_and_below_directories() {
        let directory = directory();
        let paths =
            SourcePaths { directories: vec![directory.path().into()], trim: vec!["/build".into()] };
        let file = directory.path().join("src/deep/a.c");
        let own = file.to_string_lossy();
        for recorded in [&*own, "/build/src/deep/a.c", "/elsewhere/src/deep/a.c", "src/deep/a.c"] {
            let found = SourceText::find(recorded, &paths).unwrap();
            assert_eq!(found.path, file, "{recorded}");
            assert_eq!(found.lines().collect::<Vec<_>>(), ["one", "two", "\u{fffd}"]);
            assert_eq!((found.line(2), found.line(0), found.line(4)), (Some("two"), None, None));
            assert!(found.is_newer_than(time(1).unwrap()));
        }
        for recorded in ["/elsewhere/b.c", "/builds/x/b.c", "../src/deep/a.c", "a.c\0", "/"] {
            assert!(SourceText::find(recorded, &paths).is_err(), "{recorded:?}");
        }
        assert_eq!(SourceText::find("", &paths), Err(NoText::Unnamed));
        assert_eq!(SourceText::find("/none.c", &SourcePaths::default()), Err(NoText::Missing));
    }

    #[test]
    fn only_regular_files_of_a_reasonable_size_are_read() {
        let directory = directory();
        let path = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
        let find = |name: &str| SourceText::find(&path(name), &SourcePaths::default());
        assert_eq!(find("src"), Err(NoText::NotRegular));
        let status = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(status.success());
        assert_eq!(find("fifo"), Err(NoText::NotRegular));
        let large = fs::File::create(path("large")).unwrap();
        large.set_len(2 << 30).unwrap();
        assert_eq!(find("large"), Err(NoText::TooLarge));
        fs::write(path("empty"), "").unwrap();
        assert_eq!(find("empty").unwrap().line_count(), 0);
        fs::write(path("ends"), "\n\na").unwrap();
        assert_eq!(find("ends").unwrap().lines().collect::<Vec<_>>(), ["", "", "a"]);
        let device = SourceText::find("/dev/zero", &SourcePaths::default());
        assert_eq!(device, Err(NoText::NotRegular));
    }
}
