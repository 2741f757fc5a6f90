//! Tests of the snippets, with an interpreter of the few instructions that they consist of.

use super::*;

use Reg::{R6, R8};

/// Runs instructions that compute, jump and access words of eight bytes in `memory`, which begins
/// at address 0. Registers keep their values from one run to the next.
fn run(code: &[u64], regs: &mut [u64; 11], memory: &mut [u64]) {
    let mut at = 0;
    for _ in 0..10_000 {
        let i = code[at];
        let dst = (i >> 8 & 15) as usize;
        let src = (i >> 12 & 15) as usize;
        let offset = (i >> 16) as i16;
        let value = (i >> 32) as i32 as i64 as u64;
        let word = |base: u64| (base.wrapping_add(offset as u64) / 8) as usize;
        let operand = if i & 8 != 0 { regs[src] } else { value };
        at += 1;
        match (i & 7, i & 0xf0, i as u8) {
            (_, _, 0x95) => return,
            (7, 0x00, _) => regs[dst] = regs[dst].wrapping_add(operand),
            (7, 0x10, _) => regs[dst] = regs[dst].wrapping_sub(operand),
            (7, 0x50, _) => regs[dst] &= operand,
            (7, 0x60, _) => regs[dst] <<= operand,
            (7, 0x70, _) => regs[dst] >>= operand,
            (7, 0xb0, _) => regs[dst] = operand,
            (1, _, 0x79) => regs[dst] = memory[word(regs[src])],
            (3, _, 0x7b) => memory[word(regs[dst])] = regs[src],
            (2, _, 0x7a) => memory[word(regs[dst])] = value,
            (5, condition, _) => {
                let a = regs[dst];
                let b = operand;
                let jumps = match condition {
                    0x00 => true,
                    0x10 => a == b,
                    0x20 => a > b,
                    0x30 => a >= b,
                    0x50 => a != b,
                    0xa0 => a < b,
                    other => panic!("condition {other:#x}"),
                };
                at = if jumps { at.wrapping_add_signed(offset.into()) } else { at };
            }
            _ => panic!("instruction {i:#018x}"),
        }
    }
    panic!("it runs without end");
}

/// A CPU's control value, with the programs that adapt its interval.
struct Cpu {
    code: Vec<u64>,
    memory: [u64; control::SIZE / 8],
}

impl Cpu {
    fn new() -> Cpu {
        let mut code = BpfCode::default();
        forget(&mut code, R8, R6);
        adapt(&mut code, R8, R6);
        code.exit();
        Cpu { code: code.finish(), memory: [0; control::SIZE / 8] }
    }

    fn word(&mut self, at: i16) -> &mut u64 {
        &mut self.memory[at as usize / 8]
    }

    /// The interval at this time.
    fn interval(&mut self, now: u64) -> u64 {
        let mut regs = [0; 11];
        regs[R8 as usize] = now;
        run(&self.code, &mut regs, &mut self.memory);
        assert_eq!(regs[R4 as usize], *self.word(control::INTERVAL));
        regs[R4 as usize]
    }
}

/// The probability of an event that is shorter than the interval comes from a random number of 32
/// bits, and an interval longer than all events would leave everything out.
#[test]
fn however_long_a_ring_is_full_the_interval_stays_below_two_seconds() {
    let mut cpu = Cpu::new();
    let mut now = 1 << 40;
    *cpu.word(control::DECAYED) = now;
    for _ in 0..200 {
        now += 2_000_000;
        *cpu.word(control::SAMPLES) = 2 * BURST as u64;
        let interval = cpu.interval(now);
        assert!(interval.is_power_of_two() && interval <= 1 << 30, "{interval}");
    }
    assert_eq!(*cpu.word(control::LARGEST), 1 << 30);
    // With few samples, it returns to 0.
    for _ in 0..100 {
        now += 20_000_000;
        *cpu.word(control::SAMPLES) = 0;
        cpu.interval(now);
    }
    assert_eq!(*cpu.word(control::INTERVAL), 0);
}

#[test]
fn few_samples_are_each_told() {
    let mut cpu = Cpu::new();
    let mut now = 1 << 40;
    for _ in 0..10_000 {
        now += 1 << SHIFT;
        assert_eq!(cpu.interval(now), 0);
        *cpu.word(control::SAMPLES) += 1;
    }
}
