use super::*;
use crate::CodeKey;

#[test]
fn functions_files_and_lines_are_those_that_the_program_states() {
    let memory = memory();
    let ruby = Ruby::of_recorded(&memory).unwrap();
    assert_eq!(ruby.version(), "Ruby 3.1");
    let threads = stacks(STACKS);
    assert_eq!(threads.len(), 26);
    for (pointer, shape, expected) in threads {
        let (end, frames) = frames(&ruby, &copies(&ruby, pointer, &memory));
        assert_eq!(end, ChainEnd::Complete, "{shape}");
        assert_eq!(lines(&ruby, &frames, &memory), expected, "{shape}");
    }
}

#[test]
fn the_table_passes_the_check() {
    let memory = memory();
    let threads = memory.fact("threads").unwrap();
    let threads: Vec<i32> = threads.split(' ').map(|tid| tid.parse().unwrap()).collect();
    let ruby = Ruby::of_recorded(&memory).unwrap();
    ruby.check(&threads, &memory).unwrap();
    let others: Vec<i32> = threads.iter().map(|tid| tid + 100_000).collect();
    ruby.check(&others, &memory).unwrap_err();
}

#[test]
fn walks_keep_their_limits() {
    let ruby = Ruby::of_recorded(&memory()).unwrap();
    assert!(ruby.walks().iter().all(|walk| walk.is_valid()));
}

#[test]
fn versions_without_a_table_are_refused_by_name() {
    let refused = crate::ruby::detect::offsets(4);
    assert_eq!(refused, Err(crate::Refusal::Version("Ruby 3.4".to_owned())));
}

#[test]
fn code_that_was_freed_or_replaced_has_no_name() {
    let memory = memory();
    let ruby = Ruby::of_recorded(&memory).unwrap();
    let user = frames(&ruby, &copies(&ruby, thread("sorting"), &memory)).1;
    let (function, code) = (user[0].code, user[1].code);
    let is_gone = |memory: &Recorded, key: CodeKey| ruby.name(&key, memory) == Name::Gone;
    for key in [function, code] {
        assert!(matches!(ruby.name(&key, &memory), Name::Found(_)));
        assert!(is_gone(&memory, CodeKey { object: 0x10, ..key }));
        // Another kind of object.
        let mut other = memory.clone();
        other.insert(key.object, &5_u64.to_le_bytes());
        assert!(is_gone(&other, key));
    }
    let [body, entry, method, names] = code.identity;
    for identity in [[body + 8, entry, method, names], [body, entry, method, names + 1]] {
        assert!(is_gone(&memory, CodeKey { identity, ..code }));
    }
    // Other code with the same body, in another line.
    let mut other = memory.clone();
    other.insert(body + u64::from(ruby.offsets.body_first_line), &9_u64.to_le_bytes());
    assert!(is_gone(&other, code));
    // An instruction of other code.
    assert!(is_gone(&memory, CodeKey { position: code.position.wrapping_add(1 << 16), ..code }));
    let [_, _, class, definition] = function.identity;
    let other = CodeKey { identity: [0, 0, class + 8, definition], ..function };
    assert!(is_gone(&memory, other));
}

#[test]
fn a_method_entry_that_is_another_one_gives_no_class() {
    let memory = memory();
    let ruby = Ruby::of_recorded(&memory).unwrap();
    let user = frames(&ruby, &copies(&ruby, thread("sorting"), &memory)).1;
    let named = |key: &CodeKey, memory: &Recorded| match ruby.name(key, memory) {
        Name::Found(code) => code.function,
        other => panic!("{other:?}"),
    };
    let code = user[1].code;
    assert_eq!(named(&code, &memory), "Object#wait");
    let [body, entry, method, names] = code.identity;
    let other = CodeKey { identity: [body, entry, method + 8, names], ..code };
    assert_eq!(named(&other, &memory), "wait");
    let none = CodeKey { identity: [body, 0, 0, names], ..code };
    assert_eq!(named(&none, &memory), "wait");
    // The entry of another method of the class.
    let sorting = user.iter().find(|frame| named(&frame.code, &memory) == "Object#sorting");
    let identity = sorting.unwrap().code.identity;
    let swapped = CodeKey { identity: [body, identity[1], identity[2], names], ..code };
    assert_eq!(named(&swapped, &memory), "wait");
}
