//! Methods: what identifies them, and where their bytecode is.

use super::layout::{Layout, MethodLayout};
use crate::memory::Memory;
use crate::{CodeKey, ReadError};

/// Words that identify a method, and the place of its bytecode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// Its address.
    pub address: u64,
    /// `ConstMethod`, `ConstantPool`, the class, and the numbers of name and signature with the size of
    /// the bytecode.
    pub identity: [u64; 4],
    /// The first instruction.
    pub code: u64,
    /// Size of the bytecode in bytes; 0 for native and abstract methods.
    pub code_size: u16,
}

/// Why there is no method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum No {
    /// Something else is there.
    Other,
    /// Memory cannot be read.
    Memory(ReadError),
}

impl From<ReadError> for No {
    fn from(error: ReadError) -> No {
        match error {
            // A pointer of something else.
            ReadError::Unmapped => No::Other,
            error => No::Memory(error),
        }
    }
}

/// Bytes of `ConstMethod` that are read.
pub(super) const CONSTANT: usize = 64;

impl Method {
    /// The method at an address, if there is one: its class and its pool of constants lead to each
    /// other.
    pub fn read(address: u64, layout: &Layout, memory: &dyn Memory) -> Result<Method, No> {
        let at: &MethodLayout = &layout.method;
        if address == 0 || !address.is_multiple_of(8) {
            return Err(No::Other);
        }
        let constant = memory.word(address.wrapping_add(at.constant))?;
        if constant == 0 || !constant.is_multiple_of(8) {
            return Err(No::Other);
        }
        let mut bytes = [0; CONSTANT];
        memory.read(constant, &mut bytes)?;
        let pool = word(&bytes, at.pool).ok_or(No::Other)?;
        let holder = memory.word(pool.wrapping_add(at.pool_holder))?;
        if memory.word(holder.wrapping_add(at.class_pool))? != pool {
            return Err(No::Other);
        }
        let number = |at| Some(u64::from(short(&bytes, at)?));
        let numbers =
            || Some(number(at.name)? | number(at.signature)? << 16 | number(at.code_size)? << 32);
        Ok(Method {
            address,
            identity: [constant, pool, holder, numbers().ok_or(No::Other)?],
            code: constant.wrapping_add(at.constant_size),
            code_size: short(&bytes, at.code_size).ok_or(No::Other)?,
        })
    }

    /// The key of a position in it: of its bytecode, or unknown.
    pub fn key(&self, bci: Option<i32>) -> CodeKey {
        let position = match bci {
            Some(-1) => CodeKey::NOT_BEGUN,
            Some(bci) if (0..i32::from(self.code_size)).contains(&bci) => bci.cast_unsigned(),
            _ => CodeKey::UNKNOWN,
        };
        CodeKey { object: self.address, identity: self.identity, context: 0, position }
    }

    /// The position of an instruction; `None` if it is not of this method.
    pub fn position(&self, instruction: u64) -> Option<i32> {
        let at = instruction.checked_sub(self.code)?;
        (at < u64::from(self.code_size)).then_some(at as i32)
    }
}

pub(super) fn word(bytes: &[u8], at: u64) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?))
}

pub(super) fn short(bytes: &[u8], at: u64) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at as usize..)?.first_chunk()?))
}
