//! The metadata of a file.

use std::io::{self, Write};

use serde_json::{Map, Value};

use super::{head, or_null, write_list};
use crate::report::summary;
use profile::Mapping;
use view::View;

/// Writes the metadata of the view's profile.
pub fn write_header(out: &mut dyn Write, view: &View) -> io::Result<()> {
    let profile = view.profile;
    let mut head = head(view);
    let totals = (0..profile.sample_types.len()).map(|i| Value::from(profile.unfiltered_total(i)));
    head.insert("totals".into(), totals.collect());
    head.insert("doc_url".into(), or_null(profile.str(profile.doc_url)));
    let mappings = summary::mappings(profile);
    head.insert("mappings_left_out".into(), mappings.left_out.into());
    let hexadecimal = |number: u64| Value::from(format!("{number:#x}"));
    let mapping = |mapping: &Mapping| {
        let mut out = Map::new();
        out.insert("start".into(), hexadecimal(mapping.start));
        out.insert("limit".into(), hexadecimal(mapping.limit));
        out.insert("file_offset".into(), hexadecimal(mapping.file_offset));
        out.insert("file".into(), or_null(profile.str(mapping.file)));
        out.insert("build_id".into(), or_null(profile.str(mapping.build_id)));
        out
    };
    write_list(out, head, "mappings", mappings.items.iter().map(mapping))
}
