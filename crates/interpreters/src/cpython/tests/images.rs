use super::*;
use crate::CodeKey;

#[test]
fn functions_files_and_lines_are_those_that_the_program_states() {
    for image in &IMAGES {
        let memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        assert_eq!(cpython.version(), format!("CPython {}", image.version));
        let threads = image.threads();
        assert_eq!(threads.len(), 14, "{}", image.version);
        for (pointer, shape, expected) in threads {
            let (end, frames) = frames(&cpython, &copies(&cpython, pointer, &memory));
            assert_eq!(end, ChainEnd::Complete, "{} {shape}", image.version);
            assert_eq!(lines(&cpython, &frames, &memory), expected, "{} {shape}", image.version);
        }
    }
}

#[test]
fn the_table_of_each_version_passes_the_check() {
    for image in &IMAGES {
        let memory = image.memory();
        let threads = memory.fact("threads").unwrap();
        let threads: Vec<i32> = threads.split(' ').map(|tid| tid.parse().unwrap()).collect();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        cpython.check(&threads, &memory).unwrap();
        let others: Vec<i32> = threads.iter().map(|tid| tid + 100_000).collect();
        cpython.check(&others, &memory).unwrap_err();
    }
}

#[test]
fn walks_keep_their_limits() {
    for image in &IMAGES {
        let cpython = Cpython::of_recorded(&image.memory()).unwrap();
        assert!(cpython.walks().iter().all(|walk| walk.is_valid()), "{}", image.version);
    }
}

#[test]
fn the_state_that_holds_the_lock_comes_before_that_of_the_key() {
    for image in &IMAGES[..4] {
        let mut memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let pointer = image.thread("sorting");
        let own = copies(&cpython, pointer, &memory);
        let other = copies(&cpython, image.thread("tasks"), &memory);
        let holder = cpython.symbols.runtime + u64::from(cpython.offsets.current_thread.unwrap());
        // As while it runs: the thread's own state; a state of another thread is not taken.
        for state in [own[0].object, other[0].object] {
            memory.insert(holder, &state.to_le_bytes());
            assert_eq!(copies(&cpython, pointer, &memory), own, "{}", image.version);
        }
        // A second state of the thread, of a subinterpreter: nothing runs there.
        let second = 0x1_0000;
        memory.insert(second, &[0; 512]);
        memory.insert(second + u64::from(cpython.offsets.thread_id), &pointer.to_le_bytes());
        memory.insert(holder, &second.to_le_bytes());
        assert_eq!(copies(&cpython, pointer, &memory)[0].object, second, "{}", image.version);
    }
}

#[test]
fn without_a_description_of_the_c_library_the_list_of_states_is_searched() {
    for image in &IMAGES {
        let memory = image.memory();
        let found = Cpython::of_recorded(&memory).unwrap();
        let Cpython { offsets, symbols, .. } = found.clone();
        let other = Cpython::new(offsets, symbols, None, &memory).unwrap();
        for (pointer, ..) in image.threads() {
            assert_eq!(copies(&other, pointer, &memory), copies(&found, pointer, &memory));
        }
    }
}

#[test]
fn code_that_was_freed_or_replaced_has_no_name() {
    for image in &IMAGES {
        let mut memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let copies = copies(&cpython, image.thread("sorting"), &memory);
        let key = frames(&cpython, &copies).1[1].code;
        assert!(matches!(cpython.name(&key, &memory), Name::Found(_)));
        for word in 0..4 {
            let mut other = key;
            other.identity[word] += 8;
            assert_eq!(cpython.name(&other, &memory), Name::Gone);
        }
        let unmapped = CodeKey { object: 0x10, ..key };
        assert_eq!(cpython.name(&unmapped, &memory), Name::Gone);
        let kind = key.object + u64::from(cpython.offsets.object_type);
        memory.insert(kind, &7_u64.to_le_bytes());
        assert_eq!(cpython.name(&key, &memory), Name::Gone);
    }
}

#[test]
fn frames_beyond_the_limit_are_cut_off() {
    for image in &IMAGES {
        let memory = image.memory();
        let mut cpython = Cpython::of_recorded(&memory).unwrap();
        cpython.set_most(5);
        let copies = copies(&cpython, image.thread("recursion"), &memory);
        let (end, frames) = frames(&cpython, &copies);
        assert_eq!((end, frames.len()), (ChainEnd::TooMany, 5), "{}", image.version);
    }
}

#[test]
fn the_interpreters_own_frame_around_a_constructor_is_not_shown() {
    // 3.12 calls this constructor through C.
    for image in &IMAGES[5..] {
        let memory = image.memory();
        let cpython = Cpython::of_recorded(&memory).unwrap();
        let copies = copies(&cpython, image.thread("construction"), &memory);
        let owner = (cpython.offsets.frame_owner.unwrap()) as usize;
        let all: Vec<_> = copies[0].frames(&cpython.walks()[0]).collect();
        let anchors = all.iter().filter(|frame| frame.byte(owner) == 3).count();
        let user = frames(&cpython, &copies).1.len();
        assert_eq!((all.len(), user, anchors), (user + anchors + 1, 4, 1), "{}", image.version);
    }
}
