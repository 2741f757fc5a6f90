//! An interpreter's own frames, in stacks that have functions of its programs.

use profile::{Language, LocationId, Profile, comment};

use crate::Cancel;
use crate::filter::edit;

/// True if a profile has functions of interpreted programs.
pub fn has_interpreted(profile: &Profile) -> bool {
    profile.mappings.iter().any(|mapping| Language::in_mapping(profile, mapping).is_some())
}

/// Removes the frames of interpreters from stacks that have functions of their programs, so that
/// their values are those of these. False if there are none, or after `cancel`.
pub fn hide_interpreters(profile: &mut Profile, cancel: &Cancel) -> bool {
    let files: Vec<&str> = comment::values(profile, comment::INTERPRETER).collect();
    let kind = |mapping| match Language::in_mapping(profile, mapping) {
        Some(_) => Code::Program,
        None if files.contains(&profile.str(mapping.file)) => Code::Interpreter,
        None => Code::Other,
    };
    let kinds: Vec<Code> = profile.mappings.iter().map(kind).collect();
    let mut has_any = false;
    edit::replace_stacks(profile, |profile, stack, out| {
        let kind = |id: &LocationId| {
            let mapping = profile.locations[id.0 as usize].mapping;
            mapping.map_or(Code::Other, |mapping| kinds[mapping.0 as usize])
        };
        if cancel.is_canceled() || !stack.iter().any(|id| kind(id) == Code::Program) {
            return out.extend_from_slice(stack);
        }
        let before = out.len();
        out.extend(stack.iter().filter(|id| kind(id) != Code::Interpreter));
        has_any |= out.len() - before < stack.len();
    });
    has_any
}

/// What code a mapping has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// An interpreter.
    Interpreter,
    /// Functions that an interpreter executes.
    Program,
    /// Anything else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;
    use profile::{Builder, LabelSetId, Mapping};

    /// The stacks without interpreters' frames, outermost first.
    fn hidden(stacks: &[&[(&str, &str)]], interpreters: &[&str]) -> (Vec<Vec<String>>, bool) {
        let mut builder = Builder::new(&[("samples", "count")]);
        for stack in stacks {
            let locations: Vec<_> = stack
                .iter()
                .map(|(name, file)| {
                    let file = builder.profile.strings.intern(file);
                    let known = builder.profile.mappings.iter().position(|m| m.file == file);
                    let mapping = match known {
                        Some(known) => profile::MappingId(known as u32),
                        None => builder.add_mapping(Mapping { file, ..Mapping::default() }),
                    };
                    builder.named_location_in(name, Some(mapping))
                })
                .collect();
            builder.add(&locations, LabelSetId::EMPTY, 1, &[]);
        }
        let mut profile = builder.finish(None);
        for file in interpreters {
            let comment = profile.strings.intern(&format!("{}: {file}", comment::INTERPRETER));
            profile.comments.push(comment);
        }
        let has_any = hide_interpreters(&mut profile, &Cancel::default());
        let name = |id: &LocationId| {
            let function = profile.lines_of(*id)[0].function;
            profile.str(profile.functions[function.0 as usize].name).to_owned()
        };
        let stacks = profile.samples.iter().map(|sample| profile.stacks.get(sample.stack));
        (stacks.map(|stack| stack.iter().map(name).collect()).collect(), has_any)
    }

    #[test]
    fn an_interpreters_frames_are_hidden_where_its_programs_functions_are() {
        const PYTHON: &str = "/usr/bin/python3";
        let mixed: &[(&str, &str)] = &[
            ("dict_lookup", PYTHON),
            ("handle", "[python]"),
            ("eval", PYTHON),
            ("sort", "/lib/extension.so"),
            ("main", "[python]"),
            ("eval2", PYTHON),
            ("start", "/lib/libc.so.6"),
        ];
        let native: &[(&str, &str)] = &[("gc", PYTHON), ("start", "/lib/libc.so.6")];
        let (stacks, has_any) = hidden(&[mixed, native], &[PYTHON]);
        assert_eq!(stacks, [vec!["handle", "sort", "main", "start"], vec!["gc", "start"]]);
        assert!(has_any);
        // Which file the interpreter is, the recorder has to know.
        let (stacks, has_any) = hidden(&[mixed], &["/other"]);
        assert_eq!((stacks[0].len(), has_any), (mixed.len(), false));
    }
}
