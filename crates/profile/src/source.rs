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
    locations: FxHashMap<SourceLine, LocationId>,
}

/// A line of a function, or none of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SourceLine {
    mapping: MappingId,
    function: FunctionId,
    line: Option<u32>,
}

impl Builder {
    /// Id of the location at a line of a function without an address, in the mapping of its
    /// language.
    pub fn source_location(
        &mut self,
        mapping: MappingId,
        function: SourceFunction<'_>,
        line: Option<u32>,
    ) -> LocationId {
        let SourceFunction { name, file, first_line } = function;
        let strings = &mut self.profile.strings;
        let [name, filename] = [name, file].map(|text| strings.intern(text));
        let function =
            Function { name, system_name: name, filename, start_line: first_line.into() };
        let known = self.source.functions.get(&function).copied();
        let wanted = |function| SourceLine { mapping, function, line };
        if let Some(id) = known.and_then(|id| self.source.locations.get(&wanted(id))) {
            return *id;
        }
        if self.profile.locations.len() >= self.limits.locations {
            return self.beyond();
        }
        let id = known.unwrap_or_else(|| {
            let id = FunctionId(self.profile.functions.len() as u32);
            self.profile.functions.push(function);
            self.source.functions.insert(function, id);
            id
        });
        let location = LocationId(self.profile.locations.len() as u32);
        self.profile.locations.push(Location { mapping: Some(mapping), ..Location::default() });
        let line_number = line.map_or(0, i64::from);
        self.profile.set_lines(location, &[Line { function: id, line: line_number, column: 0 }]);
        self.source.locations.insert(wanted(id), location);
        location
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mapping;

    #[test]
    fn a_line_of_a_function_is_one_location() {
        let mut builder = Builder::new(&[("samples", "count")]);
        let file = builder.profile.strings.intern("[python]");
        let mapping = builder.add_mapping(Mapping { file, ..Mapping::default() });
        let mut location = |name, file, first_line, line| {
            builder.source_location(mapping, SourceFunction { name, file, first_line }, line)
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
            (0..5).map(|line| builder.source_location(mapping, function, Some(line))).collect();
        assert_eq!(ids[2..], [ids[2]; 3]);
        assert_eq!(builder.source_location(mapping, function, Some(0)), ids[0]);
    }
}
