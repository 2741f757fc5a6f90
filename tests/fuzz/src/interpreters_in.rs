//! Memory of a process with CPython: images of running programs, of which the input changes words.

use interpreters::cpython::Cpython;
use interpreters::walk::{Thread, run as walk};
use interpreters::{Name, Recorded, Runtime};

const IMAGES: [&[u8]; 3] = [
    include_bytes!("../../../crates/interpreters/tests/data/cpython-3.8.memory"),
    include_bytes!("../../../crates/interpreters/tests/data/cpython-3.11.memory"),
    include_bytes!("../../../crates/interpreters/tests/data/cpython-3.13.memory"),
];

/// Most names that are read of a thread.
const MOST_NAMES: usize = 50;

/// The first byte selects the image; each change is a place (3 bytes) and a word. Places are counted in
/// words of the image; a word with the highest bit set is the address of such a place.
pub fn run(input: &[u8]) {
    let Some((version, changes)) = input.split_first() else { return };
    let image = IMAGES[usize::from(*version) % IMAGES.len()];
    let mut memory = Recorded::parse(image).expect("an image");
    let places: Vec<u64> = memory
        .ranges()
        .flat_map(|(start, bytes)| (start..start + bytes.len() as u64).step_by(8))
        .collect();
    for change in changes.chunks_exact(11) {
        let (place, word) = change.split_first_chunk::<3>().expect("eleven bytes");
        let place = u32::from_le_bytes([place[0], place[1], place[2], 0]) as usize;
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let word = if word >> 63 == 0 { word } else { places[word as usize % places.len()] };
        memory.insert(places[place % places.len()], &word.to_le_bytes());
    }
    let Ok(mut cpython) = Cpython::of_recorded(&memory) else { return };
    cpython.set_most(200);
    let _ = cpython.check(&[1], &memory);
    let pointers = memory.fact("pointers").expect("thread pointers").split(' ');
    for pointer in pointers {
        thread(&cpython, pointer.parse().expect("a number"), &memory);
    }
}

fn thread(cpython: &Cpython, pointer: u64, memory: &Recorded) {
    let thread = Thread { pointer, frame: 0 };
    let copies: Vec<_> =
        cpython.walks().iter().map(|descriptor| walk(descriptor, thread, memory)).collect();
    let mut frames = Vec::new();
    cpython.frames(&copies, &mut frames);
    assert!(frames.len() <= 200);
    for frame in frames.iter().take(MOST_NAMES) {
        if let Name::Found(code) = cpython.name(&frame.code, memory) {
            assert!(code.function.chars().count() <= 515 && code.file.chars().count() <= 4096);
            let _ = code.line(frame.code.position);
        }
    }
}
