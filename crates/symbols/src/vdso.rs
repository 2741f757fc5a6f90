//! The vDSO: code that the kernel maps into every process and that is in no file. It is the same in
//! all processes of a kernel, so prof's own is read.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use object::{Object, ObjectSymbol};

use profile::{StrId, StringTable};

use super::address_frames::AddressFrames;
use profile::Cause;
use sys::elf::hex;

/// Largest image that is read (it has a few pages).
const MAX_BYTES: u64 = 1 << 20;

/// The functions of the vDSO.
#[derive(Debug)]
pub struct Vdso {
    /// First and limit address, name; sorted.
    functions: Vec<(u64, u64, StrId)>,
    strings: StringTable,
    build_id: String,
}

impl Vdso {
    /// The vDSO of the running kernel.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be read.
    pub fn running() -> Result<Vdso, Cause> {
        let maps = fs::read_to_string("/proc/self/maps").map_err(unreadable)?;
        let (start, end) = range(&maps).ok_or(Cause::NoVdso)?;
        let mut image = vec![0; (end - start).min(MAX_BYTES) as usize];
        let memory = File::open("/proc/self/mem").map_err(unreadable)?;
        memory.read_exact_at(&mut image, start).map_err(unreadable)?;
        Vdso::parse(&image)
    }

    fn parse(image: &[u8]) -> Result<Vdso, Cause> {
        let damaged = |e: object::Error| Cause::Damaged(e.to_string());
        let elf = object::File::parse(image).map_err(damaged)?;
        let build_id = elf.build_id().map_err(damaged)?.map(hex).unwrap_or_default();
        let mut strings = StringTable::default();
        let mut symbols: Vec<_> = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text)
            .filter_map(|s| Some((s.address(), s.size(), s.is_weak(), s.name().ok()?)))
            .collect();
        // `clock_gettime` is a weak alias of `__vdso_clock_gettime`.
        symbols.sort_by_key(|&(address, _, weak, _)| (address, weak));
        symbols.dedup_by_key(|s| s.0);
        let functions = symbols
            .iter()
            .map(|&(start, size, _, name)| {
                (start, start.saturating_add(size), strings.intern(name))
            })
            .collect();
        Ok(Vdso { functions, strings, build_id })
    }

    /// Names of offsets into the image.
    ///
    /// # Errors
    ///
    /// The recorded vDSO (by its `build_id`, empty: unknown) is another kernel's.
    pub fn resolve(&self, build_id: &str, offsets: &[u64]) -> Result<AddressFrames, Cause> {
        if !build_id.is_empty() && build_id != self.build_id {
            return Err(Cause::BuildIdDiffers { found: self.build_id.clone() });
        }
        let mut resolved = AddressFrames::default();
        for &offset in offsets {
            let before = self.functions.partition_point(|f| f.0 <= offset).checked_sub(1);
            let function = before.map(|i| self.functions[i]).filter(|f| offset < f.1);
            resolved.push_name(function.map(|f| self.strings.get(f.2)));
        }
        Ok(resolved)
    }
}

fn unreadable(e: std::io::Error) -> Cause {
    Cause::Unreadable(e.to_string())
}

fn range(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    (start < end).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prof_s_own_vdso_has_the_clock() {
        let vdso = Vdso::running().unwrap();
        let name_of = |f: &(u64, u64, StrId)| vdso.strings.get(f.2).to_owned();
        let clock = vdso.functions.iter().find(|f| name_of(f).ends_with("clock_gettime")).unwrap();
        let resolved = vdso.resolve("", &[clock.0, clock.1 - 1, 0]).unwrap();
        let name = |i: usize| resolved.get(i).first().map(|f| resolved.strings.get(f.name));
        assert_eq!(name(0).map(str::to_owned), Some(name_of(clock)));
        assert_eq!(name(1), name(0));
        assert_eq!(name(2), None);
        assert_eq!(resolved.get(0).len(), 1);
    }

    #[test]
    fn another_kernels_vdso_is_refused() {
        let vdso = Vdso::running().unwrap();
        assert!(matches!(vdso.resolve("00ff", &[0]), Err(Cause::BuildIdDiffers { .. })));
        assert!(vdso.resolve(&vdso.build_id, &[0]).is_ok());
    }

    #[test]
    fn damaged_images_are_errors() {
        assert!(Vdso::parse(b"no ELF").is_err());
        assert_eq!(range("7fff-8000 r-xp 00000000 00:00 0  [vdso]\n"), Some((0x7fff, 0x8000)));
        assert_eq!(range("8000-7fff r-xp 00000000 00:00 0  [vdso]\n"), None);
        assert_eq!(range("7fff-8000 r-xp 00000000 00:00 0  [heap]\n"), None);
    }
}
