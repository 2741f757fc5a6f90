//! The lines of all messages, in a file that a person has read.

use super::*;

/// Each code with its lines: with both values of each fact that is true or false, all of each enum,
/// one and several of each number, with and without what may be missing.
#[test]
fn every_line_is_as_it_was_read() {
    let mut lines: Vec<String> = Vec::new();
    for message in entries().iter().flat_map(Entry::examples) {
        let line = format!("{}: {message}\n", message.code());
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    assert_written("src/tests/lines.txt", &lines.concat());
}
