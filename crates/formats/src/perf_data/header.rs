//! The header of a recording: its events, and what perf has noted about the machine.

use std::io::{Read, Seek, SeekFrom};

use super::TITLE;
use super::attribute::{Attribute, Event};
use super::fields::{Fields, words};
use super::record::BuildId;
use crate::error::ReadError;

/// First bytes of a file.
pub const MAGIC: &[u8] = b"PERFILE2";

/// Bytes of the header of a file, and of a stream.
const FILE_HEADER: usize = 104;
const STREAM_HEADER: u64 = 16;

/// Largest section that is read, in bytes: those are lists of events and of build IDs.
const LARGEST_SECTION: u64 = 64 << 20;

/// Most events.
pub(super) const MOST_EVENTS: usize = 4096;

/// Most bytes of the identifiers of all events.
const MOST_BYTES_OF_IDS: usize = 64 << 20;

/// Longest text that is kept, in characters.
const LONGEST_TEXT: usize = 1024;

/// Numbers of the features that are read.
mod feature {
    pub const BUILD_ID: u64 = 2;
    pub const HOSTNAME: u64 = 3;
    pub const OS_RELEASE: u64 = 4;
    pub const VERSION: u64 = 5;
    pub const ARCH: u64 = 6;
    pub const CPU: u64 = 8;
    pub const COMMAND_LINE: u64 = 11;
    pub const EVENTS: u64 = 12;
    pub const CLOCKS: u64 = 29;
}

/// A text of the header, with perf's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderText {
    pub key: &'static str,
    pub text: String,
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Nanoseconds since the Unix epoch.
    pub wall: u64,
    /// Nanoseconds of the clock of the samples.
    pub samples: u64,
}

/// What the header states.
#[derive(Debug, Default)]
pub struct Header {
    pub events: Vec<Event>,
    pub build_ids: Vec<BuildId>,
    pub hostname: Option<String>,
    /// As `uname -m` prints it.
    pub architecture: Option<String>,
    pub texts: Vec<HeaderText>,
    pub clocks: Option<ClockPair>,
    /// perf did not end the recording.
    pub is_unfinished: bool,
}

/// A file or a stream, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// Its header refers to places in it.
    File,
    /// It is read from its beginning to its end (`perf record -o -`).
    Stream,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    pub offset: u64,
    pub size: u64,
}

impl Section {
    fn parse(fields: &mut Fields<'_>) -> Option<Section> {
        Some(Section { offset: fields.u64()?, size: fields.u64()? })
    }

    fn end(self) -> Option<u64> {
        self.offset.checked_add(self.size)
    }
}

/// An error of the content.
pub fn invalid(what: impl Into<String>) -> ReadError {
    ReadError::invalid(TITLE, what)
}

impl Container {
    /// Parses the first 16 bytes.
    pub fn parse(start: &[u8; 16]) -> Result<Container, ReadError> {
        if start.starts_with(b"2ELIFREP") {
            return Err(invalid("it was recorded on a machine of the other byte order"));
        }
        if !start.starts_with(MAGIC) {
            return Err(invalid("it does not begin with PERFILE2"));
        }
        let size = Fields::new(&start[8..]).u64();
        Ok(if size == Some(STREAM_HEADER) { Container::Stream } else { Container::File })
    }
}

/// A file and its length.
pub struct Input<'f, F> {
    file: &'f mut F,
    length: u64,
}

impl<'f, F: Read + Seek> Input<'f, F> {
    pub fn new(file: &'f mut F) -> Result<Self, ReadError> {
        let length = file.seek(SeekFrom::End(0))?;
        Ok(Input { file, length })
    }

    fn read(&mut self, section: Section) -> Result<Vec<u8>, ReadError> {
        if section.end().is_none_or(|end| end > self.length) {
            return Err(self.cut());
        }
        if section.size > LARGEST_SECTION {
            return Err(invalid("a section of its header is larger than 64 MiB"));
        }
        self.file.seek(SeekFrom::Start(section.offset))?;
        let mut bytes = vec![0; section.size as usize];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn cut(&self) -> ReadError {
        invalid(format!("it is cut off: it ends at byte {}", self.length))
    }
}

impl Header {
    /// Reads the header of a file. Returns it and the place of the records.
    pub fn read(file: &mut (impl Read + Seek)) -> Result<(Header, Section), ReadError> {
        let mut input = Input::new(file)?;
        let start = input.read(Section { offset: 0, size: FILE_HEADER as u64 })?;
        let mut fields = Fields::new(&start[16..]);
        let places = || {
            let attribute_size = fields.u64()?;
            let attributes = Section::parse(&mut fields)?;
            let data = Section::parse(&mut fields)?;
            Section::parse(&mut fields)?;
            Some((attribute_size, attributes, data, words(fields.rest()).collect::<Vec<u64>>()))
        };
        let mut places = places;
        let Some((attribute_size, attributes, mut data, flags)) = places() else {
            return Err(input.cut());
        };
        let mut header = Header { is_unfinished: data.size == 0, ..Header::default() };
        if header.is_unfinished {
            data.size = input.length.saturating_sub(data.offset);
        }
        let Some(end) = data.end().filter(|&end| end <= input.length) else {
            return Err(input.cut());
        };
        if !header.is_unfinished {
            header.read_features(&mut input, end, &flags)?;
        }
        if header.events.is_empty() {
            header.read_attributes(&mut input, attribute_size, attributes)?;
        }
        Ok((header, data))
    }

    fn read_features<F: Read + Seek>(
        &mut self,
        input: &mut Input<'_, F>,
        start: u64,
        flags: &[u64],
    ) -> Result<(), ReadError> {
        let bits = (0..flags.len() as u64 * 64)
            .filter(|bit| flags[(bit / 64) as usize] >> (bit % 64) & 1 != 0);
        for (number, bit) in (0..).zip(bits) {
            let place = Section { offset: start + 16 * number, size: 16 };
            let place = input.read(place)?;
            let place = Section::parse(&mut Fields::new(&place)).expect("16 bytes");
            if place.end().is_none_or(|end| end > input.length) {
                return Err(input.cut());
            }
            if Header::reads(bit) {
                let content = input.read(place)?;
                self.feature(bit, &content);
            }
        }
        Ok(())
    }

    fn read_attributes<F: Read + Seek>(
        &mut self,
        input: &mut Input<'_, F>,
        size: u64,
        section: Section,
    ) -> Result<(), ReadError> {
        /// Bytes of the place of an event's identifiers, behind the event.
        const IDS: u64 = 16;
        let all = input.read(section)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size <= IDS as usize {
            return Err(invalid("the size of its events is wrong"));
        }
        let mut bytes_of_ids = 0;
        for entry in all.chunks_exact(size).take(MOST_EVENTS) {
            let (attribute, ids) = entry.split_at(size - IDS as usize);
            let ids = Section::parse(&mut Fields::new(ids)).expect("16 bytes");
            let ids = input.read(ids)?;
            // Sections of several events may overlap.
            bytes_of_ids += ids.len();
            if bytes_of_ids > MOST_BYTES_OF_IDS {
                let most = MOST_BYTES_OF_IDS >> 20;
                return Err(invalid(format!(
                    "its events have more than {most} MiB of identifiers"
                )));
            }
            let ids = words(&ids).collect();
            self.add_event(attribute, ids);
        }
        Ok(())
    }

    /// Adds an event without a name.
    fn add_event(&mut self, attribute: &[u8], ids: Vec<u64>) {
        if self.events.len() < MOST_EVENTS {
            self.events.extend(event(attribute, ids));
        }
    }

    /// Adds a feature of a stream.
    pub fn add_streamed_feature(&mut self, body: &[u8]) {
        let mut fields = Fields::new(body);
        if let Some(number) = fields.u64() {
            self.feature(number, fields.rest());
        }
    }

    fn reads(number: u64) -> bool {
        use feature::*;
        let all =
            [BUILD_ID, HOSTNAME, OS_RELEASE, VERSION, ARCH, CPU, COMMAND_LINE, EVENTS, CLOCKS];
        all.contains(&number)
    }

    fn feature(&mut self, number: u64, content: &[u8]) {
        let mut fields = Fields::new(content);
        let mut text = |key: &'static str| -> Option<String> {
            let text = cut(fields.string().filter(|text| !text.is_empty())?);
            self.texts.push(HeaderText { key, text: text.clone() });
            Some(text)
        };
        match number {
            feature::BUILD_ID => self.build_ids = BuildId::parse_all(content),
            feature::HOSTNAME => self.hostname = text("hostname"),
            feature::OS_RELEASE => drop(text("os release")),
            feature::VERSION => drop(text("perf version")),
            feature::ARCH => self.architecture = text("arch"),
            feature::CPU => drop(text("cpudesc")),
            feature::COMMAND_LINE => {
                if let Some(text) = command_line(content) {
                    self.texts.push(HeaderText { key: "cmdline", text: cut(text) });
                }
            }
            feature::EVENTS => self.describe_events(content),
            feature::CLOCKS => {
                fields.u64();
                if let (Some(wall), Some(samples)) = (fields.u64(), fields.u64()) {
                    self.clocks = Some(ClockPair { wall, samples });
                }
            }
            _ => {}
        }
    }

    /// Adds events with their names, or names to those that are known already.
    fn describe_events(&mut self, content: &[u8]) {
        let mut fields = Fields::new(content);
        let (Some(count), Some(size)) = (fields.u32(), fields.u32()) else { return };
        let mut events = Vec::new();
        let mut next = || {
            let attribute = Attribute::parse(fields.bytes(size.into())?)?;
            let ids = fields.u32()?;
            let name = cut(fields.string()?);
            let ids = words(fields.words(ids.into())?).collect();
            Some(Event { attribute, name, ids })
        };
        while events.len() < MOST_EVENTS.min(count as usize)
            && let Some(event) = next()
        {
            events.push(event);
        }
        if events.len() >= self.events.len() {
            self.events = events;
        }
    }
}

/// The words of a command line.
fn command_line(content: &[u8]) -> Option<String> {
    let mut fields = Fields::new(content);
    let count = fields.u32()?;
    let mut line = String::new();
    for _ in 0..count {
        let Some(word) = fields.string() else { break };
        if !line.is_empty() {
            line.push(' ');
        }
        line += &word;
        if line.len() > LONGEST_TEXT * 4 {
            break;
        }
    }
    (!line.is_empty()).then_some(line)
}

pub(super) fn cut(text: String) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// An event without a name.
fn event(attribute: &[u8], ids: Vec<u64>) -> Option<Event> {
    let attribute = Attribute::parse(attribute)?;
    let name = attribute.name();
    Some(Event { attribute, name, ids })
}

/// The event of a record of a stream.
pub fn streamed_event(body: &[u8]) -> Option<Event> {
    let size = Attribute::size(body).and_then(|size| usize::try_from(size).ok())?;
    let (attribute, ids) = body.split_at_checked(size)?;
    event(attribute, words(ids).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn the_first_bytes_decide_between_file_and_stream() {
        let parse = |size: u64, magic: &[u8]| {
            let start = [magic, &size.to_le_bytes()].concat();
            Container::parse(start.first_chunk().unwrap()).map_err(|e| e.to_string())
        };
        assert_eq!(parse(104, MAGIC), Ok(Container::File));
        assert_eq!(parse(16, MAGIC), Ok(Container::Stream));
        assert!(parse(16, b"2ELIFREP").unwrap_err().contains("byte order"));
        assert!(parse(16, b"PERFFILE").is_err());
    }

    #[test]
    fn sections_beyond_the_end_are_cut_off() {
        let mut file = [MAGIC, &[0; 96]].concat();
        let read = |file: &[u8]| Header::read(&mut Cursor::new(file)).map_err(|e| e.to_string());
        assert!(read(&file[..50]).unwrap_err().contains("cut off: it ends at byte 50"));
        assert!(read(&file).unwrap_err().contains("size of its events"));
        file[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        file[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(read(&file).unwrap_err().contains("cut off"));
    }

    #[test]
    fn a_command_line_is_cut() {
        let word = [&4u32.to_le_bytes()[..], b"abc\0"].concat();
        let all = [&u32::MAX.to_le_bytes()[..], &word, &word].concat();
        assert_eq!(command_line(&all).as_deref(), Some("abc abc"));
        assert_eq!(cut("ä".repeat(2000)).chars().count(), LONGEST_TEXT + 1);
    }
}
