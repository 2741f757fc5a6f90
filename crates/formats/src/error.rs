//! Errors of reading a profile.

use std::fmt;
use std::io;

/// Error of reading a profile; its `Display` is one line.
///
/// Byte offsets refer to the uncompressed stream, from 0.
#[derive(Debug)]
pub struct ReadError(Box<ReadErrorKind>);

#[derive(Debug)]
enum ReadErrorKind {
    /// The source itself failed.
    Io(io::Error),
    /// The input has no bytes.
    Empty,
    /// The input is something else.
    OtherFormat(String),
    /// The stream ended inside an element.
    Truncated { at: u64, inside: &'static str },
    /// The gzip layer is damaged.
    Gzip { at: u64, source: io::Error },
    /// The protobuf layer, or its content, is invalid.
    Malformed { at: Option<u64>, what: String },
    /// The content of another format than pprof is invalid.
    Invalid { format: &'static str, line: Option<u64>, what: String },
    /// The rest would take more memory than is reasonable for such a file.
    TooLarge { at: u64, what: String },
}

impl ReadError {
    pub(crate) fn io(source: io::Error) -> ReadError {
        ReadError(Box::new(ReadErrorKind::Io(source)))
    }

    pub(crate) fn empty() -> ReadError {
        ReadError(Box::new(ReadErrorKind::Empty))
    }

    #[cold]
    pub(crate) fn other_format(what: impl Into<String>) -> ReadError {
        ReadError(Box::new(ReadErrorKind::OtherFormat(what.into())))
    }

    /// Invalid content of the format with this title.
    #[cold]
    pub(crate) fn invalid(format: &'static str, what: impl Into<String>) -> ReadError {
        ReadError(Box::new(ReadErrorKind::Invalid { format, line: None, what: what.into() }))
    }

    /// Invalid content of the format with this title in a line, from 1.
    #[cold]
    pub(crate) fn in_line(format: &'static str, line: u64, what: impl Into<String>) -> ReadError {
        let line = Some(line);
        ReadError(Box::new(ReadErrorKind::Invalid { format, line, what: what.into() }))
    }

    #[cold]
    pub(crate) fn truncated(at: u64, inside: &'static str) -> ReadError {
        ReadError(Box::new(ReadErrorKind::Truncated { at, inside }))
    }

    #[cold]
    pub(crate) fn gzip(at: u64, source: io::Error) -> ReadError {
        ReadError(Box::new(ReadErrorKind::Gzip { at, source }))
    }

    #[cold]
    pub(crate) fn at(at: u64, what: impl Into<String>) -> ReadError {
        ReadError(Box::new(ReadErrorKind::Malformed { at: Some(at), what: what.into() }))
    }

    #[cold]
    pub(crate) fn content(what: impl Into<String>) -> ReadError {
        ReadError(Box::new(ReadErrorKind::Malformed { at: None, what: what.into() }))
    }

    #[cold]
    pub(crate) fn too_large(at: u64, what: impl Into<String>) -> ReadError {
        ReadError(Box::new(ReadErrorKind::TooLarge { at, what: what.into() }))
    }

    /// True if the bytes could be read but are not a (complete) profile.
    pub fn is_malformed(&self) -> bool {
        !matches!(*self.0, ReadErrorKind::Io(_))
    }

    /// True for an error in the protobuf layer, where the file may have another format.
    pub(crate) fn may_be_another_format(&self) -> bool {
        matches!(*self.0, ReadErrorKind::Truncated { .. } | ReadErrorKind::Malformed { .. })
    }

    /// Offset of the error in the uncompressed stream, if it has one.
    pub fn offset(&self) -> Option<u64> {
        match *self.0 {
            ReadErrorKind::Truncated { at, .. }
            | ReadErrorKind::Gzip { at, .. }
            | ReadErrorKind::TooLarge { at, .. } => Some(at),
            ReadErrorKind::Malformed { at, .. } => at,
            ReadErrorKind::Io(_)
            | ReadErrorKind::Empty
            | ReadErrorKind::OtherFormat(_)
            | ReadErrorKind::Invalid { .. } => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(source: io::Error) -> ReadError {
        ReadError::io(source)
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            ReadErrorKind::Io(e) => write!(f, "{e}"),
            ReadErrorKind::Empty => write!(f, "the file is empty"),
            ReadErrorKind::OtherFormat(what) => {
                write!(f, "not in a format that prof reads: {what}")
            }
            ReadErrorKind::Invalid { format, line: Some(line), what } => {
                write!(f, "not valid {format}: line {line}: {what}")
            }
            ReadErrorKind::Invalid { format, line: None, what } => {
                write!(f, "not valid {format}: {what}")
            }
            ReadErrorKind::Truncated { at, inside } => {
                write!(f, "the pprof file is cut off: it ends at byte {at}, inside {inside}")
            }
            ReadErrorKind::Gzip { at, source } => {
                write!(f, "the gzip stream is damaged behind byte {at} of its content: {source}")
            }
            ReadErrorKind::Malformed { at: Some(at), what } => {
                write!(f, "not a valid pprof file: at byte {at}: {what}")
            }
            ReadErrorKind::Malformed { at: None, what } => {
                write!(f, "not a valid pprof file: {what}")
            }
            ReadErrorKind::TooLarge { at, what } => {
                write!(f, "the pprof file is refused at byte {at}: {what}")
            }
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &*self.0 {
            ReadErrorKind::Io(e) | ReadErrorKind::Gzip { source: e, .. } => Some(e),
            _ => None,
        }
    }
}
