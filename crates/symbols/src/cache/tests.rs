//! Cache files: stored frames are loaded unchanged, and invalid files are refused.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::SymbolOptions;
use crate::address_frames::{AddressFrames, SymbolFrame};
use crate::headers::Headers;
use crate::source::{Layer, SymbolFiles};

fn key(build_id: &str) -> CacheKey {
    CacheKey::for_test(build_id)
}

/// Name, file, line.
type Chain = Vec<(String, String, u32)>;

fn resolved(chains: &[Chain]) -> AddressFrames {
    let mut resolved = AddressFrames::default();
    for chain in chains {
        let frames: Vec<SymbolFrame> = chain
            .iter()
            .map(|(name, file, line)| {
                let mut intern = |s: &str| resolved.strings.intern(s);
                let (name, system_name) = (intern(name), intern(&format!("_Z{name}")));
                SymbolFrame { name, system_name, file: intern(file), line: *line, column: line / 2 }
            })
            .collect();
        resolved.push(frames);
    }
    resolved
}

fn chain_at(stored: &StoredFrames, address: u64) -> Option<Chain> {
    let place = stored.find(address, 0)?;
    let frame = |f: stored::StoredFrame| {
        let [name, system_name, file] = stored.function(f.function).map(|id| stored.string(id));
        assert_eq!((system_name, f.column), (format!("_Z{name}").as_str(), f.line / 2));
        (name.to_owned(), file.to_owned(), f.line)
    };
    Some(stored.chain(place).map(frame).collect())
}

fn chain(names: &[(&str, u32)]) -> Chain {
    names.iter().map(|(name, line)| ((*name).into(), format!("{name}.c"), *line)).collect()
}

fn file(addresses: &[u64], chains: &[Chain]) -> Vec<u8> {
    let mut merged = Merged::new(None);
    merged.add(addresses, &resolved(chains));
    let bytes = merged.encode(&key("abcd1234"));
    assert_eq!(bytes.len() as u64, merged.size(&key("abcd1234")));
    bytes
}

fn parse(bytes: &[u8]) -> Result<Option<StoredFrames>, &'static str> {
    StoredFrames::parse(bytes.to_vec(), &key("abcd1234"))
}

/// The bytes with a valid checksum.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 12 {
        let mut crc = flate2::Crc::new();
        crc.update(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.sum().to_le_bytes());
    }
    bytes
}

fn cache(size: u64) -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().join("cache/prof"), size);
    (dir, cache)
}

fn merged(addresses: &[u64]) -> Merged {
    let mut merged = Merged::new(None);
    let chains: Vec<Chain> = addresses.iter().map(|_| chain(&[("f", 1)])).collect();
    merged.add(addresses, &resolved(&chains));
    merged
}

#[test]
fn later_frames_join_earlier_ones() {
    let inner = chain(&[("inner", 4), ("middle", 7), ("outer", 11)]);
    let outer = chain(&[("é", 3)]);
    let first =
        parse(&file(&[5, 9, 70], &[inner.clone(), vec![], outer.clone()])).unwrap().unwrap();
    assert_eq!((first.len(), first.find(6, 0).is_some()), (3, false));
    let mut merged = Merged::new(Some(&first));
    merged.add(&[1, 8], &resolved(&[outer.clone(), inner[1..].to_vec()]));
    let second = parse(&merged.encode(&key("abcd1234"))).unwrap().unwrap();
    let all: Vec<Option<Chain>> = [1, 5, 8, 9, 70, 71].map(|a| chain_at(&second, a)).to_vec();
    let want = [&outer, &inner, &inner[1..].to_vec(), &vec![], &outer];
    assert_eq!(all[..5], want.map(|c| Some(c.clone())));
    assert_eq!(all[5], None);
    // No duplicates: three functions of the first file, and its frames.
    assert_eq!(second.functions(), 4);
}

#[test]
fn a_file_of_another_key_is_not_read() {
    let bytes = file(&[1], &[chain(&[("f", 1)])]);
    assert!(StoredFrames::parse(bytes, &key("abcd1235")).unwrap().is_none());
}

#[test]
fn a_chain_without_end_is_refused() {
    let bytes = file(&[1], &[chain(&[("f", 1), ("g", 2)])]);
    // The last frame's caller precedes the only address and the arena.
    let arena: usize = ["f", "_Zf", "f.c", "g", "_Zg", "g.c"].iter().map(|s| s.len()).sum();
    let caller = bytes.len() - arena - 12 - 4;
    for (number, good) in [(0, true), (1, false), (2, false), (u32::MAX, true)] {
        let mut bytes = bytes.clone();
        bytes[caller..caller + 4].copy_from_slice(&u32::to_le_bytes(number));
        assert_eq!(parse(&summed(bytes)).is_ok(), good, "{number}");
    }
}

proptest! {
    #[test]
    fn stored_frames_are_loaded_unchanged(
        chains in prop::collection::btree_map(
            any::<u64>(),
            prop::collection::vec(("[a-zé]{0,3}", "[a-z/]{0,2}", 0..5u32), 0..5),
            0..40,
        ),
        cut in 0..40usize,
    ) {
        let addresses: Vec<u64> = chains.keys().copied().collect();
        let all: Vec<Chain> = chains.values().cloned().collect();
        let cut = cut.min(all.len());
        let first = parse(&file(&addresses[cut..], &all[cut..])).unwrap().unwrap();
        let mut both = Merged::new(Some(&first));
        both.add(&addresses[..cut], &resolved(&all[..cut]));
        let both = parse(&both.encode(&key("abcd1234"))).unwrap().unwrap();
        let mut place = 0;
        for (address, chain) in &chains {
            prop_assert_eq!(chain_at(&both, *address), Some(chain.clone()));
            // Also when searched from the index of the previous one.
            place = both.find(*address, place).unwrap();
        }
        prop_assert_eq!(both.len(), chains.len());
    }

    #[test]
    fn a_damaged_file_is_refused_or_harmless(
        at in 0..600usize, value in any::<u8>(), length in 0..600usize, fix in any::<bool>(),
    ) {
        let chains = [chain(&[("inner", 4), ("outer", 7)]), vec![], chain(&[("outer", 9)])];
        let good = file(&[3, 5, 8], &chains);
        let mut bytes = good.clone();
        let at = at % bytes.len();
        bytes[at] = value;
        bytes.truncate(length.max(1));
        let bytes = if fix { summed(bytes) } else { bytes };
        match parse(&bytes) {
            Ok(Some(stored)) => {
                prop_assert!(fix || bytes == good);
                for i in 0..stored.len() {
                    let ids = stored.chain(i).flat_map(|f| stored.function(f.function));
                    assert!(ids.map(|id| stored.string(id)).all(|text| text.len() < 100));
                }
                // It can be merged, too.
                Merged::new(Some(&stored)).encode(&key("abcd1234"));
            }
            Ok(None) => prop_assert!(fix),
            Err(_) => prop_assert!(bytes != good),
        }
    }
}

#[test]
fn only_files_of_the_user_are_read() {
    let (dir, cache) = cache(1 << 20);
    let key = key("abcd1234");
    assert!(cache.load(&key).is_none());
    cache.store(&key, &merged(&[7]));
    let path = cache.path(&key);
    let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&cache.dir), mode(&path)), (0o700, 0o600));
    assert_eq!(cache.load(&key).unwrap().len(), 1);
    // Other users may write to it.
    fs::set_permissions(&path, Permissions::from_mode(0o622)).unwrap();
    assert!(cache.load(&key).is_none());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&cache.dir, Permissions::from_mode(0o777)).unwrap();
    assert!(cache.load(&key).is_none());
    fs::set_permissions(&cache.dir, Permissions::from_mode(0o700)).unwrap();
    // A link leads to it.
    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(cache.load(&key).is_none());
    // A new file replaces the link and leaves its target alone.
    let before = fs::read(&elsewhere).unwrap();
    cache.store(&key, &merged(&[7, 8]));
    assert_eq!(cache.load(&key).unwrap().len(), 2);
    assert_eq!(fs::read(&elsewhere).unwrap(), before);
    assert!(cache.errors().is_empty());
    // A FIFO does not block.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(cache.load(&key).is_none());
}

#[test]
fn a_directory_of_another_user_gets_nothing() {
    if uid() != 0 {
        return sys::testing::skip("only root can give directories away");
    }
    let (dir, mut cache) = cache(1 << 20);
    cache.is_explicit = true;
    std::os::unix::fs::chown(dir.path(), Some(1), None).unwrap();
    for _ in 0..2 {
        cache.store(&key("abcd1234"), &merged(&[7]));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let errors = cache.errors();
    assert!(errors.len() == 1 && errors[0].contains("another user"), "{errors:?}");
}

#[test]
fn the_least_recently_used_files_make_room() {
    let one = merged(&[7]).size(&key("abcd0000"));
    let (_dir, cache) = cache(3 * one);
    let keys: Vec<CacheKey> = (0..5).map(|i| key(&format!("abcd000{i}"))).collect();
    let used = |key: &CacheKey, seconds: u64| {
        let file = File::options().append(true).open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    for (i, key) in keys[..3].iter().enumerate() {
        cache.store(key, &merged(&[7]));
        used(key, 100 + i as u64);
    }
    // Loading counts as use.
    assert!(cache.load(&keys[0]).is_some());
    let stale = cache.dir.join(".unfinished-old");
    fs::write(&stale, "x").unwrap();
    File::options()
        .append(true)
        .open(&stale)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    fs::write(cache.dir.join(".unfinished-new"), "x").unwrap();
    cache.store(&keys[3], &merged(&[7]));
    let there = |i: usize| cache.path(&keys[i]).exists();
    assert_eq!([0, 1, 2, 3].map(there), [true, false, true, true]);
    assert!(!stale.exists() && cache.dir.join(".unfinished-new").exists());
    // Data larger than the limit is not stored.
    cache.store(&keys[4], &merged(&(0..1000).collect::<Vec<u64>>()));
    assert_eq!([0, 2, 3, 4].map(there), [true, true, true, false]);
}

#[test]
fn a_damaged_file_is_reported_and_rewritten() {
    let (_dir, cache) = cache(1 << 20);
    let key = key("abcd1234");
    cache.store(&key, &merged(&[7]));
    fs::write(cache.path(&key), "prof").unwrap();
    assert!(cache.load(&key).is_none());
    let errors = cache.errors();
    assert!(errors.len() == 1 && errors[0].contains("damaged"), "{errors:?}");
    cache.store(&key, &merged(&[7]));
    assert_eq!(cache.load(&key).unwrap().len(), 1);
}

#[test]
fn sizes_are_numbers_with_a_unit() {
    let good = [("0", 0), ("4096", 4096), ("3k", 3072), ("512M", 512 << 20), ("2GB", 2 << 30)];
    for (text, size) in good {
        assert_eq!(bytes(text), Some(size), "{text}");
    }
    for text in ["", "M", "-1", "1.5G", "lots", "99999999999G"] {
        assert_eq!(bytes(text), None, "{text}");
    }
}

/// Runs a tool in a directory.
fn tool(dir: &Path, command: &str, args: &[&str]) {
    let status = Command::new(command).args(args).current_dir(dir).status();
    assert!(status.unwrap().success(), "{command} {args:?}");
}

#[test]
fn the_key_contains_all_that_frames_depend_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("main.c"), "int main(void) { return 0; }").unwrap();
    tool(dir.path(), "gcc", &["-g", "-o", "main", "main.c"]);
    let found = |build_id: &str, has_debug_info| {
        let headers = Headers { build_id: build_id.into(), has_debug_info, ..Headers::default() };
        let path = path("main");
        let split = false;
        let file = Arc::new(fs::File::open(&path).unwrap());
        let debug_info = has_debug_info;
        let layers = vec![Layer { path, file, debug_info, split, shared: None, unpacked: false }];
        SymbolFiles { headers, binary: true, layers, stripped: false, flaw: None }
    };
    let options = SymbolOptions { debug_dirs: vec![path("debug")], ..SymbolOptions::default() };
    let key = || CacheKey::of(&found("abcd1234", true), &options);
    let first = key().unwrap();
    assert_eq!(Some(&first), key().as_ref());
    let differs = |key: Option<CacheKey>| key.unwrap().file_name() != first.file_name();
    assert!(differs(CacheKey::of(&found("abcd1235", true), &options)));
    assert!(differs(CacheKey::of(&found("abcd1234", false), &options)));
    for other in [
        SymbolOptions { inlines: false, ..options.clone() },
        SymbolOptions { demangle: false, ..options.clone() },
    ] {
        assert!(differs(CacheKey::of(&found("abcd1234", true), &other)));
    }
    // Without a build ID, or with one that is no valid part of a file name.
    for bad in ["", "abcd", "a".repeat(400).as_str()] {
        assert_eq!(CacheKey::of(&found(bad, true), &options), None);
    }
    // Split: in other files, which are missing here.
    let mut split = found("abcd1234", true);
    split.layers[0].split = true;
    assert_eq!(CacheKey::of(&split, &options), None);
    // It is another file, with the same contents.
    fs::copy(path("main"), path("copy")).unwrap();
    fs::rename(path("copy"), path("main")).unwrap();
    assert!(differs(key()));
    let second = key().unwrap();
    // Its shared debug file is elsewhere: without it, more names may appear later.
    fs::write(path("shared.debug"), "").unwrap();
    split.layers[0].shared = Some(Arc::new(fs::File::open(path("shared.debug")).unwrap()));
    let with_shared = CacheKey::of(&split, &options).unwrap();
    assert_ne!(with_shared, second);
    fs::write(path("other.debug"), "").unwrap();
    split.layers[0].shared = Some(Arc::new(fs::File::open(path("other.debug")).unwrap()));
    assert_ne!(CacheKey::of(&split, &options).unwrap(), with_shared);
}
