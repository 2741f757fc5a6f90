//! Files of profiles that are read and written.

macro_rules! files {
    ($next:ident $($more:ident)*; $($before:tt)*) => { $next! { $($more)*; $($before)*

/// The written format holds less than the profile has.
LeftOutOfFile "left-out-of-file" Detail {
    format: String = "the format's name",
    sample_types: Vec<String> = "sample types",
    labels: Vec<String> = "keys of labels",
    parts: Vec<String> = "other parts",
} ("left out, as {format} does not hold them: {}",
   words::left_out(sample_types, labels, parts));

/// A file lacks its end or another part.
FileIncomplete "file-incomplete" Missing {
    file: String = "its path", why: String = "how that is known",
} ("{file} seems incomplete: {why}");

    } };
}
