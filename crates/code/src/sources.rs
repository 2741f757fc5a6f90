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

/// The binary that contains code of a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeOf<'a> {
    /// Its path in the profile; empty if unknown.
    pub binary: &'a str,
    /// Its build ID; empty if unknown.
    pub build_id: &'a str,
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
    texts: HashMap<(String, String), Result<Arc<SourceText>, NoText>>,
    size: usize,
    binaries: HashMap<(String, String), Found>,
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
    pub fn find(&mut self, recorded: &str, of: CodeOf<'_>) -> Result<Arc<SourceText>, NoText> {
        let key = (recorded.to_owned(), of.binary.to_owned());
        if let Some(known) = self.texts.get(&key) {
            return known.clone();
        }
        if self.size > MAX_KEPT {
            self.texts.clear();
            self.size = 0;
        }
        let text = self.read(recorded, of).map(Arc::new);
        self.size += text.as_ref().map_or(0, |text| text.size());
        self.texts.insert(key, text.clone());
        text
    }

    fn read(&mut self, recorded: &str, of: CodeOf<'_>) -> Result<SourceText, NoText> {
        if recorded.is_empty() {
            return Err(NoText::Unnamed);
        }
        let found = self.binary(of);
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
            let (path, file) = client.source_file(of.build_id, recorded, MAX_SIZE)?;
            SourceText::read(&path, Origin::Debuginfod, file).ok()
        });
        fetched.map_or(file, Ok)
    }

    /// The time that a text is newer than: that of its binary, or of the recording if the binary is
    /// no longer there. Text of the build is not newer.
    pub fn newer_than(
        &mut self,
        text: &SourceText,
        of: CodeOf<'_>,
        recorded: Option<SystemTime>,
    ) -> Option<Newer> {
        let newer = |time: SystemTime| text.is_newer_than(time);
        match self.binary(of).built {
            Some(built) => newer(built).then_some(Newer::Binary),
            None => recorded.is_some_and(newer).then_some(Newer::Recording),
        }
    }

    fn binary(&mut self, of: CodeOf<'_>) -> &Found {
        let key = (of.binary.to_owned(), of.build_id.to_owned());
        self.binaries.entry(key).or_insert_with(|| {
            // Whole debug files are not fetched for it.
            let options = SymbolOptions { debuginfod: None, ..self.options.clone() };
            let absolute = Path::new(of.binary).is_absolute();
            let found = absolute.then(|| Binary::find(of.binary, of.build_id, &options).ok());
            let Some(binary) = found.flatten() else { return Found::default() };
            let built = binary.file.metadata().and_then(|metadata| metadata.modified()).ok();
            let with_text = binary.has_embedded_source().then_some(binary);
            Found { built, with_text }
        })
    }
}
