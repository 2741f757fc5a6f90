use super::*;
use crate::php::frames::{Link, decode};
use crate::{CodeKey, Refusal};

#[test]
fn functions_files_and_lines_are_those_that_the_program_states() {
    for image in &IMAGES {
        let (memory, php) = (image.memory(), image.php());
        assert_eq!(php.version(), "PHP 8.2");
        let (end, frames) = frames(&php, &copies(&php, &memory));
        assert_eq!(end, ChainEnd::Complete, "{}", image.shape);
        assert_eq!(lines(&php, &frames, &memory), image.expected(), "{}", image.shape);
    }
}

#[test]
fn only_the_first_thread_has_frames() {
    let (memory, php) = (IMAGES[CALLS].memory(), IMAGES[CALLS].php());
    let other = Thread { pointer: 0, frame: 0, is_first: false };
    let copies: Vec<WalkCopy> = php.walks().iter().map(|walk| run(walk, other, &memory)).collect();
    assert_eq!(frames(&php, &copies), (ChainEnd::Nothing, Vec::new()));
}

#[test]
fn the_table_passes_the_check() {
    for image in &IMAGES {
        image.php().check(&image.memory()).unwrap();
        assert!(image.php().walks().iter().all(|walk| walk.is_valid()), "{}", image.shape);
    }
}

#[test]
fn a_process_that_executes_no_code_is_looked_at_again() {
    let (mut memory, php) = (IMAGES[CALLS].memory(), IMAGES[CALLS].php());
    let current = php.symbols.globals + u64::from(php.offsets.current_frame);
    memory.insert(current, &[0; 8]);
    assert_eq!(php.check(&memory), Err(Refusal::NotRunning));
}

#[test]
fn frames_without_a_function_are_no_functions() {
    let image = &IMAGES[FIBER];
    let php = image.php();
    let copies = copies(&php, &image.memory());
    let chain = decode(&php, copied(&copies));
    let roots = chain.links.iter().filter(|link| **link == Link::FiberRoot).count();
    assert_eq!((roots, chain.frames.len()), (1, image.expected().len()));
    let copies = super::copies(&IMAGES[4].php(), &IMAGES[4].memory());
    let chain = decode(&php, copied(&copies));
    assert!(chain.links.iter().any(|link| matches!(link, Link::Dummy(_))));
}

/// The key of the innermost function of the user's, and its frame.
fn innermost(php: &Php, memory: &Recorded) -> UserFrame {
    frames(php, &copies(php, memory)).1[1]
}

#[test]
fn a_function_whose_members_have_changed_has_no_name() {
    let image = &IMAGES[CALLS];
    let php = image.php();
    let key = innermost(&php, &image.memory()).code;
    let offsets = &php.offsets;
    let members = [
        offsets.function_kind,
        offsets.function_name,
        offsets.function_class,
        offsets.function_variables,
        offsets.function_size,
        offsets.function_code,
        offsets.function_file,
        offsets.function_line,
        offsets.function_end,
    ];
    for member in members {
        let mut memory = image.memory();
        let at = key.object + u64::from(member);
        let mut byte = [0];
        memory.read(at, &mut byte).unwrap();
        memory.insert(at, &[byte[0] ^ 8]);
        assert_eq!(php.name(&key, &memory), Name::Gone, "{member}");
    }
}

#[test]
fn an_eval_of_another_place_has_no_name() {
    let image = &IMAGES[1];
    let (memory, php) = (image.memory(), image.php());
    let (_, frames) = frames(&php, &copies(&php, &memory));
    let names = lines(&php, &frames, &memory);
    let eval = names.iter().position(|line| line.starts_with("eval\t")).unwrap();
    let key = frames[eval].code;
    let [origin, class, code, rest] = key.identity;
    let other = CodeKey { identity: [origin + (1 << 32), class, code, rest], ..key };
    assert_eq!(php.name(&other, &memory), Name::Gone);
}

/// Registers in the order of the kernel.
fn registers(ip: u64, frame: u64, instruction: u64) -> Vec<u8> {
    let mut words = [0_u64; sys::arch::REGISTERS];
    words[sys::arch::IP] = ip;
    words[sys::arch::DWARF_ORDER[14]] = frame;
    words[sys::arch::DWARF_ORDER[15]] = instruction;
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The line of the innermost function, if the thread executes it with these registers.
fn line(php: &Php, memory: &Recorded, copies: &[WalkCopy], registers: &[u8]) -> Option<u32> {
    let copied = Copied { walks: copies, registers: AllRegs::new(registers) };
    let mut frames = Vec::new();
    php.frames(copied, &mut frames);
    let Name::Found(code) = php.name(&frames[0].code, memory) else { panic!() };
    code.line(frames[0].code.position)
}

/// Copies without the function in C that waits.
fn without_innermost(php: &Php, copies: &[WalkCopy]) -> Vec<WalkCopy> {
    let mut copies = copies.to_vec();
    let walk = &php.walks()[0];
    let second = copies[0].frames(walk).nth(1).unwrap().address;
    copies[0].bytes.drain(..walk.frame_size());
    copies[0].first = second;
    copies
}

#[test]
fn the_innermost_line_is_that_of_the_registers_or_unknown() {
    let image = &IMAGES[CALLS];
    let (memory, php) = (image.memory(), image.php());
    let all = copies(&php, &memory);
    let frame = innermost(&php, &memory);
    let copies = without_innermost(&php, &all);
    let line =
        |ip, frame, instruction| line(&php, &memory, &copies, &registers(ip, frame, instruction));
    let inside = php.symbols.evaluation[0].start + 1000;
    let first = frame.code.identity[2];
    let address = frame.address;
    assert_eq!(line(inside, address, first), Some(15));
    assert_eq!(line(inside, address, first + 32 * 6), Some(17));
    // In a function that the evaluation function has called.
    assert_eq!(line(5, address, first + 32 * 6), Some(17));
    // Of another frame; between two instructions; before and behind the function.
    assert_eq!(line(inside, address + 8, first), None);
    assert_eq!(line(inside, address, first + 8), None);
    assert_eq!(line(inside, address, first - 32), None);
    assert_eq!(line(inside, address, first + (32 << 12)), None);
    assert_eq!(line(inside, address, u64::MAX), None);
    assert_eq!(super::images::line(&php, &memory, &copies, &[]), None);
    let mut other = php.clone();
    other.symbols.has_registers = false;
    let all = registers(inside, address, first);
    assert_eq!(super::images::line(&other, &memory, &copies, &all), None);
}
