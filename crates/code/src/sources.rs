//! Text of source files of a profile: from the debug information of their binary, from files, or
//! from debuginfod.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::text::{MAX_SIZE, NoText, Origin, SourcePaths, SourceText};
use symbols::{Binary, SymbolOptions};

/// Bytes of text that are kept.
const MAX_KEPT: usize = 64 << 20;

/// A time that a source file should be older than.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newer {
    /// That of the binary's file.
    Binary,
    /// That of the recording.
    Recording,
}

/// A binary, and its build: path and build ID.
type Build = (String, String);

/// The binary that contains code of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinaryId<'a> {
    /// Its path in the profile; empty if unknown.
    pub path: &'a str,
    /// Its build ID; empty if unknown.
    pub build_id: &'a str,
}

impl BinaryId<'_> {
    fn build(self) -> Build {
        (self.path.to_owned(), self.build_id.to_owned())
    }
}

/// Facts of a binary that was looked up.
#[derive(Default)]
struct Found {
    /// The modification time of its file.
    built: Option<SystemTime>,
    /// The binary, if it has text.
    with_text: Option<Binary>,
}

/// Finds the texts of source files, and keeps some of them.
pub struct Sources<'a> {
    paths: &'a SourcePaths,
    options: &'a SymbolOptions,
    /// By recorded path and build: another build has been compiled from other text.
    texts: HashMap<(String, Build), Result<Arc<SourceText>, NoText>>,
    size: usize,
    binaries: HashMap<Build, Found>,
}

impl<'a> Sources<'a> {
    /// Texts below these paths and, with the client of the options, from debuginfod.
    pub fn new(paths: &'a SourcePaths, options: &'a SymbolOptions) -> Sources<'a> {
        Sources { paths, options, texts: HashMap::new(), size: 0, binaries: HashMap::new() }
    }

    /// The text of the source file with a recorded path.
    ///
    /// The text in the debug information is that of the build. A file comes next, unless it is
    /// newer than the binary and debuginfod has the right one.
    ///
    /// # Errors
    ///
    /// There is none, or it is not an ordinary file of a reasonable size.
    pub fn find(
        &mut self,
        recorded: &str,
        binary: BinaryId<'_>,
    ) -> Result<Arc<SourceText>, NoText> {
        let key = (recorded.to_owned(), binary.build());
        if let Some(known) = self.texts.get(&key) {
            return known.clone();
        }
        if self.size > MAX_KEPT {
            self.texts.clear();
            self.size = 0;
        }
        let text = self.read(recorded, binary).map(Arc::new);
        self.size += text.as_ref().map_or(0, |text| text.size());
        self.texts.insert(key, text.clone());
        text
    }

    fn read(&mut self, recorded: &str, binary: BinaryId<'_>) -> Result<SourceText, NoText> {
        if recorded.is_empty() {
            return Err(NoText::Unnamed);
        }
        let found = self.binary(binary);
        let embedded = found.with_text.as_ref().and_then(|binary| {
            let text = binary.embedded_source(recorded, MAX_SIZE as usize)?;
            Some(SourceText::new(&binary.path, Origin::Embedded, &text))
        });
        if let Some(embedded) = embedded {
            return Ok(embedded);
        }
        let built = found.built;
        let file = SourceText::find(recorded, self.paths);
        let is_right = |text: &SourceText| built.is_none_or(|built| !text.is_newer_than(built));
        if file.as_ref().is_ok_and(is_right) {
            return file;
        }
        let fetched = self.options.debuginfod.as_ref().and_then(|client| {
            let (path, file) = client.source_file(binary.build_id, recorded, MAX_SIZE)?;
            SourceText::read(&path, Origin::Debuginfod, file).ok()
        });
        fetched.map_or(file, Ok)
    }

    /// The time that a text is newer than: that of its binary, or of the recording if the binary is
    /// no longer there. Text of the build is not newer.
    pub fn newer_than(
        &mut self,
        text: &SourceText,
        binary: BinaryId<'_>,
        recorded: Option<SystemTime>,
    ) -> Option<Newer> {
        let newer = |time: SystemTime| text.is_newer_than(time);
        match self.binary(binary).built {
            Some(built) => newer(built).then_some(Newer::Binary),
            None => recorded.is_some_and(newer).then_some(Newer::Recording),
        }
    }

    fn binary(&mut self, binary: BinaryId<'_>) -> &Found {
        self.binaries.entry(binary.build()).or_insert_with(|| {
            // Whole debug files are not fetched for it.
            let options = SymbolOptions { debuginfod: None, ..self.options.clone() };
            let absolute = Path::new(binary.path).is_absolute();
            let found = absolute.then(|| Binary::find(binary.path, binary.build_id, &options).ok());
            let Some(binary) = found.flatten() else { return Found::default() };
            let built = binary.file.metadata().and_then(|metadata| metadata.modified()).ok();
            let with_text = binary.has_embedded_source().then_some(binary);
            Found { built, with_text }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use symbols::debuginfod::{Debuginfod, Environment};

    #[test]
    fn each_build_has_its_own_text() {
        let directory = tempfile::tempdir().unwrap();
        // What debuginfod delivered before.
        let cache = directory.path().join("cache");
        let builds = ["aaaaaaaa", "bbbbbbbb"];
        for build_id in builds {
            let of_build = cache.join(build_id);
            fs::create_dir_all(&of_build).unwrap();
            for directory in [&cache, &of_build] {
                fs::set_permissions(directory, PermissionsExt::from_mode(0o700)).unwrap();
            }
            fs::write(of_build.join("source##none##a.c"), build_id).unwrap();
        }
        let environment = Environment { cache, ..Environment::default() };
        let client = Arc::new(Debuginfod::new(&environment, |_| {}));
        let options = SymbolOptions { debuginfod: Some(client), ..SymbolOptions::default() };
        let paths = SourcePaths::default();
        let mut sources = Sources::new(&paths, &options);
        for build_id in builds {
            let binary = BinaryId { path: "/none/app", build_id };
            let text = sources.find("/none/a.c", binary).unwrap();
            assert_eq!((text.line(1), text.origin), (Some(build_id), Origin::Debuginfod));
        }
    }
}
