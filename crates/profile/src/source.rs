//! Locations of code without addresses: functions of interpreted programs, by file and line.

use rustc_hash::FxHashMap;

use super::{Builder, Function, FunctionId, Line, Location, LocationId, MappingId};

/// A function of an interpreted program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFunction<'a> {
    /// Its name, with classes and functions around it.
    pub name: &'a str,
    /// Its file as the interpreter has it; empty if unknown.
    pub file: &'a str,
    /// The line at which it begins.
    pub first_line: u32,
}

/// The functions and locations so far.
#[derive(Default)]
pub(super) struct SourceIndex {
    functions: FxHashMap<Function, FunctionId>,
    /// By their lines, the innermost first.
    locations: FxHashMap<Box<[SourceLine]>, LocationId>,
}

/// A line of a function, or none of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SourceLine {
    mapping: MappingId,
    function: FunctionId,
    line: Option<u32>,
}

impl Builder {
    /// Id of the location at lines of functions without an address, in the mapping of their language:
    /// of a function, after those that are inlined into it there.
    pub fn source_location<'a>(
        &mut self,
        mapping: MappingId,
        frames: impl IntoIterator<Item = (SourceFunction<'a>, Option<u32>)>,
    ) -> LocationId {
        let is_full = self.profile.locations.len() >= self.limits.locations;
        let mut wanted: Vec<SourceLine> = Vec::new();
        for (function, line) in frames {
            let Some(function) = self.source_function(function, is_full) else {
                return self.beyond();
            };
            wanted.push(SourceLine { mapping, function, line });
        }
        if let Some(id) = self.source.locations.get(&wanted[..]) {
            return *id;
        }
        if is_full {
            return self.beyond();
        }
        let location = LocationId(self.profile.locations.len() as u32);
        self.profile.locations.push(Location { mapping: Some(mapping), ..Location::default() });
        let line = |found: &SourceLine| {
            let line = found.line.map_or(0, i64::from);
            Line { function: found.function, line, column: 0 }
        };
        let lines: Vec<Line> = wanted.iter().map(line).collect();
        self.profile.set_lines(location, &lines);
        self.source.locations.insert(wanted.into(), location);
        location
    }

    /// The id of a function; `None` if it is not known, and only known ones are wanted.
    fn source_function(
        &mut self,
        function: SourceFunction<'_>,
        is_known: bool,
    ) -> Option<FunctionId> {
        let SourceFunction { name, file, first_line } = function;
        let strings = &mut self.profile.strings;
        let [name, filename] = [name, file].map(|text| strings.intern(text));
        let function =
            Function { name, system_name: name, filename, start_line: first_line.into() };
        let known = self.source.functions.get(&function).copied();
        if known.is_some() || is_known {
            return known;
        }
        let id = FunctionId(self.profile.functions.len() as u32);
        self.profile.functions.push(function);
        self.source.functions.insert(function, id);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;

    #[test]
    fn a_location_has_the_functions_that_are_inlined_there() {
        let mut builder = Builder::new(&[("samples", "count")]);
        let mapping = builder.add_mapping(Mapping::default());
        let mut location = |frames: &[(&'static str, u32)]| {
            let frame =
                |&(name, line)| (SourceFunction { name, file: "a.js", first_line: 1 }, Some(line));
            builder.source_location(mapping, frames.iter().map(frame))
        };
        let inlined = location(&[("inner", 2), ("outer", 9)]);
        assert_eq!(location(&[("inner", 2), ("outer", 9)]), inlined);
        for other in [&[("outer", 9)][..], &[("outer", 9), ("inner", 2)], &[("inner", 2)]] {
            assert_ne!(location(other), inlined);
        }
        let lines = builder.profile.lines_of(inlined);
        assert_eq!(lines.iter().map(|line| line.line).collect::<Vec<_>>(), [2, 9]);
    }

    #[test]
    fn a_line_of_a_function_is_one_location() {
        let mut builder = Builder::new(&[("samples", "count")]);
        let file = builder.profile.strings.intern("[python]");
        let mapping = builder.add_mapping(Mapping { file, ..Mapping::default() });
        let mut location = |name, file, first_line, line| {
            let function = SourceFunction { name, file, first_line };
            builder.source_location(mapping, [(function, line)])
        };
        let first = location("f", "a.py", 1, Some(2));
        assert_eq!(location("f", "a.py", 1, Some(2)), first);
        let others = [
            location("f", "a.py", 1, Some(3)),
            location("f", "a.py", 1, None),
            location("f", "b.py", 1, Some(2)),
            location("f", "a.py", 2, Some(2)),
            location("g", "a.py", 1, Some(2)),
        ];
        for (i, other) in others.iter().enumerate() {
            assert!(*other != first && !others[..i].contains(other), "{i}");
        }
        let profile = &builder.profile;
        assert_eq!((profile.functions.len(), profile.locations.len()), (4, 6));
        let line = profile.lines_of(first)[0];
        let function = profile.functions[line.function.0 as usize];
        assert_eq!((line.line, function.start_line), (2, 1));
        assert_eq!((profile.str(function.name), profile.str(function.filename)), ("f", "a.py"));
    }

    #[test]
    fn locations_beyond_the_limit_are_one() {
        let limits = crate::Limits { locations: 2, ..crate::Limits::default() };
        let mut builder = Builder::new(&[("samples", "count")]).with_limits(limits);
        let mapping = builder.add_mapping(Mapping::default());
        let function = SourceFunction { name: "f", file: "", first_line: 1 };
        let ids: Vec<_> =
            (0..5).map(|line| builder.source_location(mapping, [(function, Some(line))])).collect();
        assert_eq!(ids[2..], [ids[2]; 3]);
        assert_eq!(builder.source_location(mapping, [(function, Some(0))]), ids[0]);
    }
}
