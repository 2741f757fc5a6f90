//! Opening of files that debug information names.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sys::foreign::{self, Links, Root};

/// The root directory below which a name is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// prof's own.
    Own,
    /// That of the process that mapped the binary, if it is another one. No link leads out of it.
    Process,
}

/// A path, and what it is relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub side: Side,
    pub path: PathBuf,
}

impl Place {
    /// A path in prof's own root directory.
    pub fn own(path: &Path) -> Place {
        Place { side: Side::Own, path: path.to_owned() }
    }

    /// The directory that the file is in.
    pub fn parent(&self) -> Option<Place> {
        Some(Place { side: self.side, path: self.path.parent()?.to_owned() })
    }

    /// A file below this directory.
    pub fn join(&self, name: &Path) -> Place {
        Place { side: self.side, path: self.path.join(name) }
    }

    /// The place that a path of prof's own leads to through links.
    pub fn resolved(&self) -> Place {
        let path = match self.side {
            Side::Own => self.path.canonicalize().ok(),
            Side::Process => None,
        };
        Place { side: self.side, path: path.unwrap_or_else(|| self.path.clone()) }
    }

    /// The same path in each root directory that may have it, the process's first: a path in that
    /// of a process may have another meaning in prof's own.
    pub fn alternatives(self) -> impl Iterator<Item = Place> {
        let own = match self.side {
            Side::Own => None,
            Side::Process => Some(Place::own(&self.path)),
        };
        [Some(self), own].into_iter().flatten()
    }
}

/// Opens files for a resolver, which may have no right to do so itself.
pub trait Opener {
    /// Opens a regular file.
    ///
    /// # Errors
    ///
    /// It does not exist, or is refused.
    fn open(&self, place: &Place) -> io::Result<File>;
}

/// Opens files in this process.
#[derive(Clone, Debug, Default)]
pub struct DirectOpener {
    /// Root directory of the process that mapped the binary, if it is not prof's own.
    pub root: Option<Arc<Root>>,
}

impl Opener for DirectOpener {
    fn open(&self, place: &Place) -> io::Result<File> {
        match (place.side, &self.root) {
            (Side::Own, _) => foreign::open(&place.path),
            (Side::Process, Some(root)) => root.open(&place.path, Links::Follow),
            (Side::Process, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}
