//! An assembler for BPF programs, with labels as jump targets
//! (`Documentation/bpf/standardization/instruction-set.rst` of the kernel).
//!
//! prof's programs are short and depend on the recording (limits, offsets, descriptors of maps), so
//! they are assembled for each recording: building prof needs no BPF compiler, and constants need
//! no look-up at run time.

/// A register: `R0` has the result of calls; `R1` to `R5` are their arguments, which they
/// overwrite; `R6` to `R9` are preserved; `R10` is the end of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The size of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSize {
    /// Four bytes.
    Word = 0x00,
    /// Eight bytes.
    Long = 0x18,
}

/// A 64-bit arithmetic or logic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum AluOp {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    And = 0x50,
    Lsh = 0x60,
    Rsh = 0x70,
    Mov = 0xb0,
}

/// The condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum If {
    Equal = 0x10,
    Greater = 0x20,
    AtLeast = 0x30,
    /// They have a common bit.
    Both = 0x40,
    Differ = 0x50,
    Less = 0xa0,
}

/// Functions of the kernel (`enum bpf_func_id` of `linux/bpf.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    KtimeGetNs = 5,
    Random = 7,
    CpuNumber = 8,
    PidTgid = 14,
    PerfEventOutput = 25,
    ProbeReadUser = 112,
    ProbeReadKernel = 113,
    SendSignalThread = 117,
    SeqWrite = 127,
    RingOutput = 130,
    RingReserve = 131,
    RingSubmit = 132,
    RingDiscard = 133,
    RingQuery = 134,
    CurrentTask = 158,
    TaskRegs = 175,
}

/// A location in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLabel(usize);

const LDX: u8 = 0x61;
const STX: u8 = 0x63;
const ST: u8 = 0x62;
const ALU64: u8 = 0x07;
const JMP: u8 = 0x05;
/// The second operand is a register.
const REG: u8 = 0x08;
const LOAD_64: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// `BPF_PSEUDO_MAP_FD`.
const MAP_FD: u8 = 1;
/// `BPF_PSEUDO_MAP_VALUE`.
const MAP_VALUE: u8 = 2;
/// `BPF_PSEUDO_KFUNC_CALL`.
const KERNEL_FUNCTION: u8 = 2;

/// `BPF_JMP | BPF_JCOND`, with `BPF_MAY_GOTO` as its source.
const MAY_GOTO: u8 = 0xe5;

/// A program under construction.
#[derive(Debug, Default)]
pub struct BpfCode {
    instructions: Vec<u64>,
    /// The position of each label, if it has one.
    labels: Vec<Option<usize>>,
    /// Positions of jumps, with their labels.
    jumps: Vec<(usize, CodeLabel)>,
}

impl BpfCode {
    fn push(&mut self, code: u8, dst: Reg, src: u8, offset: i16, value: i32) {
        self.instructions.push(
            u64::from(code)
                | (dst as u64) << 8
                | u64::from(src) << 12
                | u64::from(offset as u16) << 16
                | u64::from(value as u32) << 32,
        );
    }

    /// A label, to be placed by [`BpfCode::put`].
    pub fn label(&mut self) -> CodeLabel {
        self.labels.push(None);
        CodeLabel(self.labels.len() - 1)
    }

    /// Places the label here.
    pub fn put(&mut self, label: CodeLabel) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `dst = *(src + offset)`
    pub fn load(&mut self, size: AccessSize, dst: Reg, src: Reg, offset: i16) {
        self.push(LDX | size as u8, dst, src as u8, offset, 0);
    }

    /// `*(dst + offset) = src`
    pub fn store(&mut self, size: AccessSize, dst: Reg, offset: i16, src: Reg) {
        self.push(STX | size as u8, dst, src as u8, offset, 0);
    }

    /// `*(dst + offset) = value`
    pub fn store_value(&mut self, size: AccessSize, dst: Reg, offset: i16, value: i32) {
        self.push(ST | size as u8, dst, 0, offset, value);
    }

    /// `*(dst + offset) += src`, eight bytes; `spare` is overwritten.
    pub fn add_to(&mut self, dst: Reg, offset: i16, src: Reg, spare: Reg) {
        self.load(AccessSize::Long, spare, dst, offset);
        self.op(AluOp::Add, spare, src);
        self.store(AccessSize::Long, dst, offset, spare);
    }

    /// `dst = dst op src`
    pub fn op(&mut self, op: AluOp, dst: Reg, src: Reg) {
        self.push(ALU64 | REG | op as u8, dst, src as u8, 0, 0);
    }

    /// `dst = dst op value`
    pub fn op_value(&mut self, op: AluOp, dst: Reg, value: i32) {
        self.push(ALU64 | op as u8, dst, 0, 0, value);
    }

    /// `dst = value`
    pub fn number(&mut self, dst: Reg, value: u64) {
        self.push(LOAD_64, dst, 0, 0, value as u32 as i32);
        self.instructions.push(value >> 32 << 32);
    }

    /// `dst = map`, for [`BpfCode::call`].
    pub fn map(&mut self, dst: Reg, map: i32) {
        self.push(LOAD_64, dst, MAP_FD, 0, map);
        self.instructions.push(0);
    }

    /// `dst` = the address of the only value of a map ([`MapKind::Mapped`](super::syscall::MapKind)).
    pub fn map_value(&mut self, dst: Reg, map: i32) {
        self.push(LOAD_64, dst, MAP_VALUE, 0, map);
        self.instructions.push(0);
    }

    /// Calls a helper function of the kernel.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, Reg::R0, 0, 0, helper as i32);
    }

    /// Calls a kernel function (kfunc) by its BTF type ID ([`super::btf::Btf::function`]).
    pub fn call_function(&mut self, function: u32) {
        self.push(CALL, Reg::R0, KERNEL_FUNCTION, 0, function as i32);
    }

    /// Jumps unconditionally.
    pub fn jump(&mut self, to: CodeLabel) {
        self.jumps.push((self.instructions.len(), to));
        self.push(JMP, Reg::R0, 0, 0, 0);
    }

    /// Jumps if the condition holds for `dst` and `src`.
    pub fn jump_if(&mut self, is: If, dst: Reg, src: Reg, to: CodeLabel) {
        self.jumps.push((self.instructions.len(), to));
        self.push(JMP | REG | is as u8, dst, src as u8, 0, 0);
    }

    /// Jumps if the condition holds for `dst` and `value`.
    pub fn jump_if_value(&mut self, is: If, dst: Reg, value: i32, to: CodeLabel) {
        self.jumps.push((self.instructions.len(), to));
        self.push(JMP | is as u8, dst, 0, 0, value);
    }

    /// Jumps after a very large number of iterations (Linux 6.9), so that the verifier accepts a
    /// loop without following each iteration.
    pub fn may_jump(&mut self, to: CodeLabel) {
        self.jumps.push((self.instructions.len(), to));
        self.push(MAY_GOTO, Reg::R0, 0, 0, 0);
    }

    /// Ends the program.
    pub fn exit(&mut self) {
        self.exit_with(0);
    }

    /// Ends the program with a result.
    pub fn exit_with(&mut self, result: i32) {
        self.op_value(AluOp::Mov, Reg::R0, result);
        self.push(EXIT, Reg::R0, 0, 0, 0);
    }

    /// The instructions, with jumps resolved.
    pub fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("a label that is jumped to is put");
            let offset = i16::try_from(to as i64 - at as i64 - 1).expect("a short program");
            self.instructions[at] |= u64::from(offset as u16) << 16;
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from LLVM's assembler.
    #[test]
    fn instructions_are_the_kernel_s() {
        let mut c = BpfCode::default();
        let end = c.label();
        c.load(AccessSize::Long, Reg::R1, Reg::R6, 8);
        c.store(AccessSize::Word, Reg::R10, -4, Reg::R0);
        c.store_value(AccessSize::Long, Reg::R7, 16, -1);
        c.op(AluOp::Add, Reg::R1, Reg::R2);
        c.op_value(AluOp::Rsh, Reg::R0, 32);
        c.jump_if(If::Greater, Reg::R1, Reg::R2, end);
        c.jump_if_value(If::Equal, Reg::R0, 0, end);
        c.number(Reg::R3, 0x1_0000_0002);
        c.map(Reg::R1, 5);
        c.call(Helper::MapLookup);
        c.call_function(0x1234);
        c.put(end);
        c.exit();
        let bytes: Vec<String> = c
            .finish()
            .iter()
            .map(|i| i.to_le_bytes().map(|b| format!("{b:02x}")).concat())
            .collect();
        assert_eq!(
            bytes,
            [
                "7961080000000000",
                "630afcff00000000",
                "7a071000ffffffff",
                "0f21000000000000",
                "7700000020000000",
                "2d21070000000000",
                "1500060000000000",
                "1803000002000000",
                "0000000001000000",
                "1811000005000000",
                "0000000000000000",
                "8500000001000000",
                "8520000034120000",
                "b700000000000000",
                "9500000000000000",
            ]
        );
    }
}
