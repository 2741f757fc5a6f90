//! Names and lines of a method, read from the process.

use super::debug::signed;
use super::layout::{Layout, SourceFile};
use super::methods::{CONSTANT, Method, No, short};
use crate::{Code, CodeKey, Lines, Memory, Name};

/// Longest name of a class or a method, signature, and name of a file that is kept, in bytes; longer
/// ones are cut.
const LONGEST: u16 = 1024;

/// Largest line table, in bytes.
const MAX_LINES: usize = 128 << 10;

/// Bytes of a line table that are read at a time.
const PART: usize = 512;

/// The method has a line table (`ConstMethodFlags`).
const HAS_LINES: u16 = 1;

/// Names a method. Its identity is compared before and after the reading: its class may be unloaded, and
/// its memory used again at any moment.
pub(super) fn name(layout: &Layout, key: &CodeKey, memory: &dyn Memory) -> Name {
    match read(layout, key, memory) {
        Ok(code) => Name::Found(code),
        Err(No::Other) => Name::Gone,
        Err(No::Memory(error)) => Name::Unreadable(error),
    }
}

fn check(layout: &Layout, key: &CodeKey, memory: &dyn Memory) -> Result<Method, No> {
    let method = Method::read(key.object, layout, memory)?;
    if method.identity == key.identity { Ok(method) } else { Err(No::Other) }
}

fn read(layout: &Layout, key: &CodeKey, memory: &dyn Memory) -> Result<Code, No> {
    let method = check(layout, key, memory)?;
    let at = &layout.method;
    let [constant, pool, holder, numbers] = method.identity;
    let entries = Pool { layout, address: pool, memory };
    let class = symbol(layout, memory.word(holder.wrapping_add(at.class_name))?, memory)?;
    let name = entries.text(numbers as u16)?;
    let signature = entries.text((numbers >> 16) as u16)?;
    let file = match at.source_file {
        SourceFile::Pool(place) => memory.half(pool.wrapping_add(place))?,
        SourceFile::Class(place) => memory.half(holder.wrapping_add(place))?,
    };
    let file = match file as u16 {
        0 => String::new(),
        number => entries.text(number)?,
    };
    let mut bytes = [0; CONSTANT];
    memory.read(constant, &mut bytes)?;
    let has_lines = short(&bytes, at.flags).is_some_and(|flags| flags & HAS_LINES != 0);
    let lines = if has_lines {
        let table = method.code.wrapping_add(method.code_size.into());
        read_lines(table, layout.excludes_zero, memory)?
    } else {
        Vec::new()
    };
    check(layout, key, memory)?;
    let first_line = lines.first().map_or(0, |(_, line)| *line);
    let function = format!("{}.{name}{}", class.replace('/', "."), short_signature(&signature));
    Ok(Code { function, file, first_line, lines: Lines::Steps(lines.into()) })
}

/// The constants of a class.
struct Pool<'a> {
    layout: &'a Layout,
    address: u64,
    memory: &'a dyn Memory,
}

impl Pool<'_> {
    /// The symbol with a number.
    fn text(&self, number: u16) -> Result<String, No> {
        let at = &self.layout.method;
        let length = self.memory.half(self.address.wrapping_add(at.pool_length))?;
        if number == 0 || u32::from(number) >= length {
            return Err(No::Other);
        }
        let entry = self.address.wrapping_add(at.pool_size + u64::from(number) * 8);
        symbol(self.layout, self.memory.word(entry)?, self.memory)
    }
}

/// The text of a `Symbol`, in modified UTF-8.
fn symbol(layout: &Layout, address: u64, memory: &dyn Memory) -> Result<String, No> {
    let at = &layout.method;
    let mut length = [0; 2];
    memory.read(address.wrapping_add(at.symbol_length), &mut length)?;
    let stated = u16::from_le_bytes(length);
    if stated == 0 {
        return Err(No::Other);
    }
    let mut bytes = vec![0; stated.min(LONGEST).into()];
    memory.read(address.wrapping_add(at.symbol_text), &mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if stated > LONGEST {
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
        text.push_str("...");
    }
    Ok(text)
}

/// The types of parameters without their packages: `(String, int[])` of `(Ljava/lang/String;[I)V`
/// (JVMS 4.3.3). What is not a signature remains as it is.
fn short_signature(signature: &str) -> String {
    let types = || {
        let mut rest = signature.strip_prefix('(')?;
        let mut types = Vec::new();
        while !rest.starts_with(')') {
            // It was cut.
            if rest.is_empty() || rest.starts_with("...") {
                types.push("...".to_owned());
                break;
            }
            let element = rest.trim_start_matches('[');
            let dimensions = rest.len() - element.len();
            let (name, after) = match element.chars().next()? {
                'L' => match element[1..].split_once(';') {
                    Some((class, after)) => (class.rsplit('/').next()?, after),
                    None => ("...", ""),
                },
                letter => (primitive(letter)?, &element[1..]),
            };
            let is_cut = after.is_empty();
            types.push(format!("{name}{}", "[]".repeat(dimensions)));
            if is_cut {
                break;
            }
            rest = after;
        }
        Some(format!("({})", types.join(", ")))
    };
    types().unwrap_or_else(|| signature.to_owned())
}

/// A type that is no class.
fn primitive(letter: char) -> Option<&'static str> {
    Some(match letter {
        'B' => "byte",
        'C' => "char",
        'D' => "double",
        'F' => "float",
        'I' => "int",
        'J' => "long",
        'S' => "short",
        'Z' => "boolean",
        _ => return None,
    })
}

/// The line table at an address: positions and lines, in the order of positions
/// (`CompressedLineNumberReadStream`).
fn read_lines(table: u64, excludes_zero: bool, memory: &dyn Memory) -> Result<Vec<(u32, u32)>, No> {
    let mut bytes = Vec::new();
    let mut wanted = PART;
    while bytes.len() < MAX_LINES {
        while bytes.len() < wanted {
            let mut part = [0; PART];
            let address = table.wrapping_add(bytes.len() as u64);
            // It may end with the memory.
            let in_page = (4096 - address % 4096).min(PART as u64) as usize;
            match memory.read(address, &mut part[..in_page]) {
                Err(_) if !bytes.is_empty() => break,
                read => read?,
            }
            bytes.extend(&part[..in_page]);
        }
        if let Some(lines) = lines(&bytes, excludes_zero) {
            return Ok(lines);
        }
        if bytes.len() < wanted {
            return Err(No::Other);
        }
        // It is decoded from its beginning.
        wanted = bytes.len() * 2;
    }
    Err(No::Other)
}

/// The lines of a table; `None` if it goes on behind these bytes.
fn lines(bytes: &[u8], excludes_zero: bool) -> Option<Vec<(u32, u32)>> {
    /// A byte before two numbers with signs.
    const LONG: u8 = 0xff;
    let (mut bci, mut line, mut at) = (0_u32, 0_u32, 0);
    let mut lines = Vec::new();
    loop {
        match *bytes.get(at)? {
            0 => break,
            LONG => {
                at += 1;
                let distance = signed(bytes, &mut at, excludes_zero)?;
                bci = bci.wrapping_add_signed(distance);
                line = line.wrapping_add_signed(signed(bytes, &mut at, excludes_zero)?);
            }
            both => {
                at += 1;
                bci = bci.wrapping_add(u32::from(both >> 3));
                line = line.wrapping_add(u32::from(both & 7));
            }
        }
        lines.push((bci, line));
    }
    lines.sort_by_key(|(bci, _)| *bci);
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_short() {
        for (signature, short) in [
            ("()V", "()"),
            ("(I)V", "(int)"),
            (
                "(Ljava/lang/String;[I[[Ljava/util/Map$Entry;JZ)I",
                "(String, int[], Map$Entry[][], long, boolean)",
            ),
            ("(LOne;Ljava/la...", "(One, ...)"),
            ("(II...", "(int, int, ...)"),
            ("(X)V", "(X)V"),
            ("", ""),
        ] {
            assert_eq!(short_signature(signature), short);
        }
    }

    #[test]
    fn lines_are_decoded_in_the_order_of_positions() {
        // Position 0 in line 10 takes two numbers, then 5 and 3 more in one byte, and 0 and 1 back.
        let table = [0xff, 0, 20, 5 << 3 | 3, 0xff, 1, 1, 0];
        assert_eq!(lines(&table, false), Some(vec![(0, 10), (4, 12), (5, 13)]));
        for cut in 0..table.len() {
            assert_eq!(lines(&table[..cut], false), None);
        }
    }
}
