//! Cache files: which are used, stored and removed.

use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use sys::os::uid;

use crate::address_frames::AddressFrames;

fn key(build_id: &str) -> CacheKey {
    CacheKey::for_test(build_id)
}

fn cache(size: u64) -> (tempfile::TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path().join("cache/prof"), size);
    (dir, cache)
}

impl Cache {
    fn path(&self, key: &CacheKey) -> PathBuf {
        self.dir.join(file_name(key))
    }
}

fn frames(addresses: &[u64]) -> FrameEncoder {
    let mut resolved = AddressFrames::default();
    addresses.iter().for_each(|_| resolved.push_name(Some("f")));
    let mut frames = FrameEncoder::default();
    frames.add_resolved(addresses, &resolved);
    frames
}

#[test]
fn only_files_of_the_user_are_read() {
    let (dir, cache) = cache(1 << 20);
    let key = key("abcd1234");
    assert!(cache.load(&key).is_none());
    cache.store(&key, &frames(&[7]));
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
    cache.store(&key, &frames(&[7, 8]));
    assert_eq!(cache.load(&key).unwrap().len(), 2);
    assert_eq!(fs::read(&elsewhere).unwrap(), before);
    assert!(cache.errors().is_empty());
    // A FIFO does not block.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(cache.load(&key).is_none());
}

/// True if a cache in this directory keeps what it stores.
fn keeps(dir: &Path) -> bool {
    let cache = Cache::at(dir.to_owned(), 1 << 20);
    cache.store(&key("abcd1234"), &frames(&[7]));
    cache.load(&key("abcd1234")).is_some()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_that_others_can_replace_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("above/cache")).unwrap();
    assert!(keeps(&path("above/cache/prof")));
    // (directory, mode, for an existing cache, for a new one)
    for (directory, mode, old, new) in [
        ("above/cache/prof", 0o770, false, true),
        ("above/cache/prof", 0o702, false, true),
        ("above/cache", 0o770, true, true),
        ("above/cache", 0o702, false, false),
        ("above/cache", 0o1777, true, true),
        ("above", 0o777, false, false),
        ("above", 0o1777, true, true),
    ] {
        set_mode(&path(directory), mode);
        let what = format!("{directory} {mode:o}");
        assert_eq!(keeps(&path("above/cache/prof")), old, "{what}");
        assert_eq!(keeps(&path("above/cache/another")), new, "{what}");
        assert_eq!(path("above/cache/another").exists(), new, "{what}");
        set_mode(&path(directory), 0o700);
        let _ = fs::remove_dir_all(path("above/cache/another"));
    }
}

#[test]
fn links_to_a_directory_are_followed_but_no_link_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("home")).unwrap();
    fs::create_dir(path("away")).unwrap();
    symlink("../away", path("home/prof")).unwrap();
    assert!(!keeps(&path("home/prof")));
    symlink("../away/new", path("home/dangling")).unwrap();
    assert!(!keeps(&path("home/dangling")));
    assert_eq!(fs::read_dir(path("away")).unwrap().count(), 0);
    // The home itself may be one.
    symlink("away", path("link")).unwrap();
    assert!(keeps(&path("link/prof")));
    assert!(path("away/prof").is_dir());
    // Not that of a directory which others can replace.
    set_mode(&path("away"), 0o707);
    assert!(!keeps(&path("link/prof")));
}

#[test]
fn a_path_through_a_directory_of_another_user_is_not_used() {
    if uid() != 0 {
        return sys::testing::skip("only root can give directories away");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir_all(path("theirs/mine/prof")).unwrap();
    assert!(keeps(&path("theirs/mine/prof")));
    std::os::unix::fs::chown(path("theirs"), Some(1), None).unwrap();
    assert!(!keeps(&path("theirs/mine/prof")));
    assert!(!keeps(&path("theirs/mine/new")));
    assert_eq!(fs::read_dir(path("theirs/mine")).unwrap().count(), 1);
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
        cache.store(&key("abcd1234"), &frames(&[7]));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let errors = cache.errors();
    assert!(errors.len() == 1 && errors[0].contains("another user"), "{errors:?}");
}

#[test]
fn the_least_recently_used_files_make_room() {
    let one = frames(&[7]).size(key("abcd0000").text());
    let (_dir, cache) = cache(3 * one);
    let keys: Vec<CacheKey> = (0..5).map(|i| key(&format!("abcd000{i}"))).collect();
    let used = |key: &CacheKey, seconds: u64| {
        let file = File::options().append(true).open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    for (i, key) in keys[..3].iter().enumerate() {
        cache.store(key, &frames(&[7]));
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
    cache.store(&keys[3], &frames(&[7]));
    let there = |i: usize| cache.path(&keys[i]).exists();
    assert_eq!([0, 1, 2, 3].map(there), [true, false, true, true]);
    assert!(!stale.exists() && cache.dir.join(".unfinished-new").exists());
    // Data larger than the limit is not stored.
    cache.store(&keys[4], &frames(&(0..1000).collect::<Vec<u64>>()));
    assert_eq!([0, 2, 3, 4].map(there), [true, true, true, false]);
}

#[test]
fn a_damaged_file_is_reported_and_rewritten() {
    let (_dir, cache) = cache(1 << 20);
    let key = key("abcd1234");
    cache.store(&key, &frames(&[7]));
    fs::write(cache.path(&key), "prof").unwrap();
    assert!(cache.load(&key).is_none());
    let errors = cache.errors();
    assert!(errors.len() == 1 && errors[0].contains("damaged"), "{errors:?}");
    cache.store(&key, &frames(&[7]));
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
