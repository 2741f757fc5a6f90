//! Names from copies of code, compared with those from memory.

use crate::walk::{CODE_BLOCKS, CopiedCode, WalkCopy};
use crate::{Code, CodeKey, Memory, Name, Runtime, UserFrame};

/// Compares the names of frames. Code whose names or lines are too long for a copy has none in it.
/// Returns the number of those that are equal.
#[track_caller]
pub fn assert_equal_names(
    runtime: &dyn Runtime,
    copy: &WalkCopy,
    users: &[UserFrame],
    memory: &dyn Memory,
) -> usize {
    let walk = &runtime.walks()[0];
    let descriptor = walk.code.as_ref().unwrap();
    let mut equal = 0;
    for frame in copy.frames(walk) {
        let own = users.iter().find(|user| user.address == frame.address);
        let Some(key) = own.map(|user| user.code) else { continue };
        let copied = CopiedCode::parse(&descriptor.copy(frame, memory));
        assert_eq!(copied.object(), Some(key.object));
        let Name::Found(whole) = runtime.name(&key, memory) else { continue };
        match runtime.name(&key, &copied) {
            Name::Found(found) => {
                assert_eq!(names(&found), names(&whole));
                let has_lines = found.lines.len() == whole.lines.len();
                assert!(has_lines || whole.lines.len() > CODE_BLOCKS[4] / 4, "{whole:?}");
                equal += 1;
            }
            Name::Gone => {
                let longest = whole.function.len().max(whole.file.len());
                assert!(longest > CODE_BLOCKS[2] / 5, "{whole:?}");
            }
            other => panic!("{other:?}"),
        }
        let other = CodeKey { object: key.object + 8, ..key };
        assert_eq!(runtime.name(&other, &copied), Name::Gone);
    }
    equal
}

fn names(code: &Code) -> (&str, &str, u32) {
    (&code.function, &code.file, code.first_line)
}
