//! Memory of a process with an interpreter: images of running programs, of which the input changes
//! words.

use interpreters::cpython::Cpython;
use interpreters::hotspot::{Address, HotSpot, Times};
use interpreters::php::Php;
use interpreters::ruby::Ruby;
use interpreters::v8::V8;
use interpreters::walk::{Thread, run as walk};
use interpreters::{Copied, Interpreter, Name, Recorded, Runtime};
use sys::record::AllRegs;

/// An image in `crates/interpreters/tests/data`.
macro_rules! image {
    ($name:literal) => {
        include_bytes!(concat!("../../../crates/interpreters/tests/data/", $name, ".memory"))
    };
}

const IMAGES: [(Interpreter, &[u8]); 8] = [
    (Interpreter::Cpython, image!("cpython-3.8")),
    (Interpreter::Cpython, image!("cpython-3.11")),
    (Interpreter::Cpython, image!("cpython-3.13")),
    (Interpreter::Ruby, image!("ruby-3.1")),
    (Interpreter::Php, image!("php-8.2-calls")),
    (Interpreter::V8, image!("v8-12.4")),
    (Interpreter::HotSpot, image!("hotspot-17")),
    (Interpreter::HotSpot, image!("hotspot-25")),
];

/// Most frames of a walk.
const MOST_FRAMES: u32 = 200;

/// Most names that are read of a thread.
const MOST_NAMES: usize = 50;

/// The first byte selects the image; each change is a place (3 bytes) and a word. Places are counted in
/// words of the image; a word with the highest bit set is the address of such a place.
pub fn run(input: &[u8]) {
    let Some((version, changes)) = input.split_first() else { return };
    let (interpreter, image) = IMAGES[usize::from(*version) % IMAGES.len()];
    let mut memory = Recorded::parse(image).expect("an image");
    let places = memory.words();
    for change in changes.chunks_exact(11) {
        let (place, word) = change.split_first_chunk::<3>().expect("eleven bytes");
        let place = u32::from_le_bytes([place[0], place[1], place[2], 0]) as usize;
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let word = if word >> 63 == 0 { word } else { places[word as usize % places.len()] };
        memory.insert(places[place % places.len()], &word.to_le_bytes());
    }
    let Some(runtime) = runtime(interpreter, &memory) else { return };
    let pointers = memory.fact("pointers").unwrap_or_default().split_whitespace();
    // Those of V8 have the numbers of their threads before them.
    let pointers = pointers.map(|pair| pair.rsplit('=').next().expect("at least one part"));
    for pointer in pointers.chain(["0"]) {
        let pointer = pointer.parse().expect("a number");
        let thread = Thread { pointer, frame: pointer, is_first: true };
        read_thread(&*runtime, thread, &memory);
    }
}

fn runtime(interpreter: Interpreter, memory: &Recorded) -> Option<Box<dyn Runtime>> {
    Some(match interpreter {
        Interpreter::Cpython => {
            let mut found = Cpython::of_recorded(memory).ok()?;
            found.set_most(MOST_FRAMES);
            let _ = found.check(&[1], memory);
            Box::new(found)
        }
        Interpreter::Ruby => {
            let mut found = Ruby::of_recorded(memory).ok()?;
            found.set_most(MOST_FRAMES);
            Box::new(found)
        }
        Interpreter::Php => {
            let mut found = Php::of_recorded(memory).ok()?;
            found.set_most(MOST_FRAMES);
            let _ = found.check(memory);
            Box::new(found)
        }
        Interpreter::HotSpot => {
            let found = HotSpot::of_recorded(memory).ok()?;
            read_code(&found, memory);
            Box::new(found)
        }
        Interpreter::V8 => {
            let mut found = V8::of_recorded(memory).ok()?;
            found.set_most(MOST_FRAMES);
            Box::new(found)
        }
    })
}

/// Walks from the innermost frames of Java, of samples that were just taken, or long before.
fn read_code(hotspot: &HotSpot, memory: &Recorded) {
    const NOW: u64 = 10_000_000_000;
    hotspot.read_heaps(NOW, memory);
    for frame in hotspot.last_frames(memory).unwrap_or_default().iter().take(MOST_NAMES) {
        for key in hotspot.walk(*frame, memory).unwrap_or_default().iter().take(MOST_NAMES) {
            if let Name::Found(code) = hotspot.name(key, memory) {
                assert!(code.function.len() < 4096 && code.file.len() < 2048);
                let _ = code.line(key.position);
            }
        }
        let at = Address { address: frame.address, is_return: true };
        let _ = hotspot.shape(at, Times { sample: 1, now: NOW }, Some(memory));
    }
}

fn read_thread(runtime: &dyn Runtime, thread: Thread, memory: &Recorded) {
    let walks = runtime.walks().iter();
    let copies: Vec<_> = walks.map(|descriptor| walk(descriptor, thread, memory)).collect();
    let mut frames = Vec::new();
    runtime.frames(Copied { walks: &copies, registers: AllRegs::default() }, &mut frames);
    assert!(frames.len() <= MOST_FRAMES as usize);
    for frame in frames.iter().take(MOST_NAMES) {
        if let Name::Found(code) = runtime.name(&frame.code, memory) {
            // Names have classes and blocks before them.
            assert!(code.function.chars().count() <= 2048 && code.file.chars().count() <= 4096);
            let _ = code.line(frame.code.position);
        }
    }
}
