use super::*;
use crate::memory::Counted;
use crate::merge::{Merge, NativeFrame, NativeStack};
use crate::v8::heap::Heap;
use crate::v8::machine::CodeAddress;
use crate::v8::source::Sources;

#[test]
fn functions_scripts_and_lines_are_those_that_the_program_states() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        assert_eq!(v8.version(), format!("V8 {}", image.version));
        for (pointer, shape, expected) in image.threads() {
            let (end, frames) = frames(&v8, &copies(&v8, pointer, &memory));
            assert_eq!(end, ChainEnd::Complete, "{} {shape}", image.version);
            compare(&v8, &frames, &expected, &memory, &format!("{} {shape}", image.version));
        }
    }
}

#[test]
fn inlined_functions_have_the_frame_of_their_caller() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let frames = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        let names = |frame: &UserFrame| {
            let names = executed(&v8, std::slice::from_ref(frame), &memory).into_iter();
            names.map(|key| match v8.name(&key, &memory) {
                Name::Found(code) => code.function,
                other => panic!("{other:?}"),
            })
        };
        let inlined = frames.iter().map(|frame| names(frame).collect::<Vec<_>>());
        let inlined: Vec<_> = inlined.filter(|names| names.len() > 1).collect();
        let expected = ["looping", "inlining"].map(|outer| ["third", "second", outer]);
        assert_eq!(inlined, expected, "{}", image.version);
    }
}

#[test]
fn code_that_was_entered_in_a_loop_has_frames_for_some_time() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let frames = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        let momentary = frames.iter().filter_map(|frame| match v8.executed(&frame.code, &memory) {
            Executed::Momentary(keys) => Some(keys.len()),
            _ => None,
        });
        assert_eq!(momentary.collect::<Vec<_>>(), [3], "{}", image.version);
    }
}

#[test]
fn code_that_was_entered_in_a_loop_is_read_again_when_it_is_replaced() {
    for image in &IMAGES {
        let mut memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let frames = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        let is_entered = |frame: &&UserFrame| {
            matches!(v8.executed(&frame.code, &memory), Executed::Momentary(_))
        };
        let key = frames.iter().find(is_entered).unwrap().code;
        let counted = Counted::new(&memory);
        assert!(matches!(v8.executed(&key, &counted), Executed::Momentary(_)));
        assert!(counted.calls.get() <= 2, "{}: {}", image.version, counted.calls.get());
        let CodeAddress { pc, .. } = CodeAddress::decode(&key).unwrap();
        // As if all memory around the address had been used for other objects.
        memory.insert(pc - 4096, &[0; 4096]);
        let Executed::Frames(keys) = v8.executed(&key, &memory) else { panic!("{key:?}") };
        assert_eq!((keys.len(), keys[0].position), (1, CodeKey::UNKNOWN), "{}", image.version);
    }
}

#[test]
fn an_instruction_that_is_executing_has_frames_and_lines() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let frames = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        let mut compared = 0;
        for UserFrame { code, .. } in &frames {
            let Some(CodeAddress { pc, .. }) = CodeAddress::decode(code) else { continue };
            // As if the last byte of its call were being executed.
            let within = CodeAddress { pc: pc - 1, is_innermost: true }.replace(*code);
            assert_eq!(v8.executed(&within, &memory), v8.executed(code, &memory));
            compared += 1;
        }
        assert_eq!(compared, 6, "{}", image.version);
    }
}

#[test]
fn code_that_was_replaced_gives_no_line() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let frames = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        let position = |code: &CodeKey| match v8.executed(code, &memory) {
            Executed::Frames(keys) | Executed::Momentary(keys) => keys.last().unwrap().position,
            other => panic!("{other:?}"),
        };
        let compiled = frames.iter().filter(|frame| frame.code.identity[3] != 0);
        for UserFrame { code, .. } in compiled.clone() {
            assert_ne!(position(code), CodeKey::UNKNOWN);
            // Code of another function is at the address.
            let other = compiled.clone().map(|other| other.code.object);
            let object = other.into_iter().find(|object| *object != code.object).unwrap();
            assert_eq!(position(&CodeKey { object, ..*code }), CodeKey::UNKNOWN);
            // No code is there.
            let moved = |position| CodeKey { position, ..*code };
            assert_eq!(position(&moved(code.position ^ 0x7000_0000)), CodeKey::UNKNOWN);
        }
        // Three of code without optimization, three of optimized code.
        assert_eq!(compiled.count(), 6, "{}", image.version);
    }
}

#[test]
fn walks_keep_their_limits() {
    for image in &IMAGES {
        let v8 = V8::of_recorded(&image.memory()).unwrap();
        assert!(v8.walks().len() == 2 && v8.walks().iter().all(|walk| walk.is_valid()));
    }
}

#[test]
fn a_function_that_was_collected_or_replaced_has_no_name() {
    for image in &IMAGES {
        let mut memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let key = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1[2].code;
        assert!(matches!(v8.name(&key, &memory), Name::Found(_)));
        for word in 0..3 {
            let mut other = key;
            other.identity[word] += 8;
            assert_eq!(v8.name(&other, &memory), Name::Gone, "{} {word}", image.version);
        }
        let unmapped = CodeKey { object: 0x1001, ..key };
        assert_eq!(v8.name(&unmapped, &memory), Name::Gone);
        memory.insert(key.object - 1, &7_u64.to_le_bytes());
        assert_eq!(v8.name(&key, &memory), Name::Gone);
    }
}

#[test]
fn frames_beyond_the_limit_are_cut_off() {
    for image in &IMAGES {
        let memory = image.memory();
        let mut v8 = V8::of_recorded(&memory).unwrap();
        v8.set_most(6);
        let (end, frames) = frames(&v8, &copies(&v8, image.thread("main"), &memory));
        // The first frame is the call of C++.
        assert_eq!((end, frames.len()), (ChainEnd::TooMany, 5), "{}", image.version);
    }
}

#[test]
fn while_javascript_runs_the_chain_begins_at_the_frame_pointer() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let pointer = image.thread("main");
        let called = copies(&v8, pointer, &memory);
        let expected = frames(&v8, &called).1;
        // As if `wait` had not called C++: its frame is the innermost one.
        let frame = expected[0].address;
        let thread = Thread { pointer, frame, is_first: false };
        let own = [run(&v8.walks()[0], thread, &memory), WalkCopy::nothing()];
        let registers = |sp: u64| {
            let mut bytes = vec![0; sys::arch::REGISTERS * 8];
            let words = [(sys::arch::IP, 0x1234_5678), (sys::arch::BP, frame), (sys::arch::SP, sp)];
            for (register, word) in words {
                bytes[register * 8..register * 8 + 8].copy_from_slice(&u64::to_le_bytes(word));
            }
            bytes
        };
        let decode = |registers: &[u8]| {
            let mut found = Vec::new();
            let registers = AllRegs::new(registers);
            let end = v8.frames(Copied { walks: &own, registers }, &mut found);
            (end, found)
        };
        let (end, found) = decode(&registers(frame - 64));
        assert_eq!((end, found.len()), (ChainEnd::Complete, expected.len()));
        assert_eq!(found[1..], expected[1..]);
        assert_eq!(executed(&v8, &found[..1], &memory)[0].position, CodeKey::UNKNOWN);
        // Frames below the stack pointer are gone; then it executes no JavaScript.
        assert_eq!(decode(&registers(frame + 8)), (ChainEnd::Nothing, Vec::new()));
    }
}

/// The copy of the walk that begins at a frame.
fn from_frame(v8: &V8, frame: u64, memory: &dyn Memory) -> WalkCopy {
    run(&v8.walks()[0], Thread { pointer: 0, frame, is_first: false }, memory)
}

/// Registers of a thread: its stack pointer.
fn stack_pointer(sp: u64) -> Vec<u8> {
    let mut bytes = vec![0; sys::arch::REGISTERS * 8];
    bytes[sys::arch::SP * 8..sys::arch::SP * 8 + 8].copy_from_slice(&sp.to_le_bytes());
    bytes
}

#[test]
fn a_function_that_calls_cpp_without_a_frame_for_that_is_the_innermost_one() {
    // There is no such thread in the first one.
    for image in &IMAGES[1..] {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let pointer = image.thread("direct");
        let copies = copies(&v8, pointer, &memory);
        // The first start is such a call, the second one a call with a frame.
        let mut walk = v8.walks()[1].clone();
        walk.starts.truncate(1);
        let thread = Thread { pointer, frame: 0, is_first: false };
        assert!(run(&walk, thread, &memory) == copies[1], "{}", image.version);
        let frames = frames(&v8, &copies).1;
        let Name::Found(code) = v8.name(&frames[0].code, &memory) else { panic!() };
        assert_eq!(code.function, "match", "{}", image.version);
    }
}

#[test]
fn a_frame_of_a_call_that_has_ended_hides_no_function() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let all = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        let decode = |own: usize, called: usize, sp: u64| {
            let at = |number: usize| from_frame(&v8, all[number].address, &memory);
            let walks = [at(own), at(called)];
            let mut found = Vec::new();
            let registers = stack_pointer(sp);
            let registers = AllRegs::new(&registers);
            let end = v8.frames(Copied { walks: &walks, registers }, &mut found);
            (end, found.iter().map(|frame| frame.address).collect::<Vec<_>>())
        };
        let addresses = |from: usize| all[from..].iter().map(|frame| frame.address).collect();
        let sp = all[0].address - 64;
        // The thread executes functions that were called later.
        assert_eq!(decode(0, 3, sp), (ChainEnd::Complete, addresses(0)), "{}", image.version);
        // Its frame pointer is that of the call, or of a function around it.
        assert_eq!(decode(2, 2, sp), (ChainEnd::Complete, addresses(2)), "{}", image.version);
        assert_eq!(decode(3, 2, sp), (ChainEnd::Complete, addresses(2)), "{}", image.version);
        // The frame is no longer on the stack.
        let sp = all[2].address + 8;
        assert_eq!(decode(0, 1, sp), (ChainEnd::Damaged, Vec::new()), "{}", image.version);
    }
}

#[test]
fn the_innermost_function_is_at_the_call_that_the_native_stack_shows() {
    for image in &IMAGES {
        let memory = image.memory();
        let v8 = V8::of_recorded(&memory).unwrap();
        let all = frames(&v8, &copies(&v8, image.thread("main"), &memory)).1;
        // As if machine code, whose callee's frames have its address, had called C++ itself.
        let is_machine = |frame: &&UserFrame| CodeAddress::decode(&frame.code).is_some();
        let expected = all.iter().find(is_machine).unwrap();
        let CodeAddress { pc, .. } = CodeAddress::decode(&expected.code).unwrap();
        let walks = [WalkCopy::nothing(), from_frame(&v8, expected.address, &memory)];
        let found = frames(&v8, &walks).1;
        let position =
            |key: &CodeKey| executed(&v8, &[UserFrame { code: *key, ..*expected }], &memory);
        assert_eq!(position(&found[0].code)[0].position, CodeKey::UNKNOWN);
        let first = expected.address;
        let frame = |address, stack| NativeFrame { address, stack, is_run_time: true };
        let natives = vec![frame(1, first - 64..first - 32), frame(pc, first - 32..u64::MAX)];
        let native = NativeStack { frames: natives, is_complete: true, code: None };
        let mut merged = Vec::new();
        let places = v8.merge(copied(&walks), &native, &mut merged);
        assert!(matches!(places, Merge::Stack { .. }));
        assert_eq!(position(&merged[0].code), position(&expected.code), "{}", image.version);
        assert_ne!(position(&merged[0].code)[0].position, CodeKey::UNKNOWN);
    }
}

#[test]
fn another_text_of_the_same_length_at_the_same_place_has_its_own_lines() {
    let mut memory = IMAGES[0].memory();
    let v8 = V8::of_recorded(&memory).unwrap();
    let offsets = &v8.offsets;
    let (script, map, text) = (0x1_0001, 0x2_0001, 0x3_0001);
    let mut put = |object: u64, at: u32, bytes: &[u8]| {
        memory.insert(object - 1 + u64::from(at), bytes);
    };
    put(script, 0, &[0; 128]);
    put(script, offsets.script_source, &u64::to_le_bytes(text));
    // Characters of one byte.
    put(map, offsets.map_type, &8_u16.to_le_bytes());
    put(map, offsets.map_type + 2, &[0; 2]);
    put(text, 0, &u64::to_le_bytes(map));
    let lines = |memory: &mut Recorded, source: &str, sources: &Sources| {
        let mut put = |at: u32, bytes: &[u8]| memory.insert(text - 1 + u64::from(at), bytes);
        put(offsets.string_length, &(source.len() as u32).to_le_bytes());
        put(offsets.string_chars, source.as_bytes());
        let heap = Heap { offsets, memory };
        let span = sources.span(heap, script, 0..=source.len() as u32).unwrap().unwrap();
        [0, 2, 4, 6].map(|place| span.line(place))
    };
    let sources = Sources::default();
    assert_eq!(lines(&mut memory, "a\nb\nc\nd", &sources), [1, 2, 3, 4].map(Some));
    assert_eq!(lines(&mut memory, "a b c\nd", &sources), [1, 1, 1, 2].map(Some));
    assert_eq!(lines(&mut memory, "a\nb\nc\nd", &sources), [1, 2, 3, 4].map(Some));
}
