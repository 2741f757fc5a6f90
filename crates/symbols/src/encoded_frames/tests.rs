//! Encoded frames are parsed unchanged, and invalid bytes are refused.

use proptest::prelude::*;

use super::*;

const KEY: &str = "a key";

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

fn chain_at(stored: &EncodedFrames, address: u64) -> Option<Chain> {
    let place = stored.find(address, 0)?;
    let frame = |f: EncodedFrame| {
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
    let mut encoder = FrameEncoder::default();
    encoder.add_resolved(addresses, &resolved(chains));
    let bytes = encoder.encode(KEY, u64::MAX).unwrap();
    assert_eq!(bytes.len() as u64, encoder.size(KEY));
    bytes
}

fn parse(bytes: &[u8]) -> Result<Option<EncodedFrames>, &'static str> {
    EncodedFrames::parse(bytes.to_vec(), KEY)
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

#[test]
fn later_frames_join_earlier_ones() {
    let inner = chain(&[("inner", 4), ("middle", 7), ("outer", 11)]);
    let outer = chain(&[("é", 3)]);
    let first =
        parse(&file(&[5, 9, 70], &[inner.clone(), vec![], outer.clone()])).unwrap().unwrap();
    assert_eq!((first.len(), first.find(6, 0).is_some()), (3, false));
    let mut both = FrameEncoder::default();
    both.add_encoded(&first);
    both.add_resolved(&[1, 8], &resolved(&[outer.clone(), inner[1..].to_vec()]));
    let second = parse(&both.encode(KEY, u64::MAX).unwrap()).unwrap().unwrap();
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
    assert!(EncodedFrames::parse(bytes, "another").unwrap().is_none());
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
        let second = parse(&file(&addresses[..cut], &all[..cut])).unwrap().unwrap();
        let mut both = FrameEncoder::default();
        both.add_encoded(&first);
        both.add_encoded(&second);
        let both = parse(&both.encode(KEY, u64::MAX).unwrap()).unwrap().unwrap();
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
                let mut encoder = FrameEncoder::default();
                encoder.add_encoded(&stored);
                prop_assert!(encoder.encode(KEY, u64::MAX).is_some());
            }
            Ok(None) => prop_assert!(fix),
            Err(_) => prop_assert!(bytes != good),
        }
    }
}

#[test]
fn an_answer_is_that_to_its_request() {
    let mut resolved = AddressFrames::default();
    [Some("main"), None].into_iter().for_each(|name| resolved.push_name(name));
    let why = Cause::PartMissing("x.dwo".into());
    resolved.incomplete = Some(why.clone());
    let resolved = Resolved::new(&[3, 5], resolved).unwrap();
    assert_eq!(resolved.incomplete, Some(why));
    for (addresses, good) in
        [(&[3, 5][..], true), (&[3], false), (&[3, 6], false), (&[3, 5, 7], false)]
    {
        assert_eq!(resolved.frames.is_answer_to(addresses), good, "{addresses:?}");
    }
}

#[test]
fn the_deepest_chains_keep_their_ends() {
    let deep: Chain =
        (0..MAX_DEPTH as u32 + 50).map(|i| (format!("f{i}"), String::new(), i)).collect();
    let parsed = parse(&file(&[7], std::slice::from_ref(&deep))).unwrap().unwrap();
    let kept = chain_at(&parsed, 7).unwrap();
    assert_eq!(kept.len(), MAX_DEPTH);
    assert_eq!(kept[..MAX_DEPTH - 1], deep[..MAX_DEPTH - 1]);
    assert_eq!(kept.last(), deep.last());
}

/// Few bytes can describe many long chains, which would take all memory when they are written.
#[test]
fn more_frames_than_a_profile_can_take_are_refused() {
    let deep: Chain = (0..MAX_DEPTH as u32).map(|i| ("f".to_owned(), String::new(), i)).collect();
    let addresses: Vec<u64> = (0..MAX_FRAMES / MAX_DEPTH as u64 + 1).collect();
    let mut encoder = FrameEncoder::default();
    encoder.add_resolved(&[0], &resolved(&[deep]));
    let innermost = encoder.addresses[0].1;
    encoder.addresses = addresses.iter().map(|&address| (address, innermost)).collect();
    let bytes = encoder.encode(KEY, u64::MAX).unwrap();
    assert!(bytes.len() < 1 << 20);
    assert_eq!(parse(&bytes).err(), Some("inconsistent"));
    encoder.total = MAX_FRAMES + 1;
    assert!(encoder.encode(KEY, u64::MAX).is_none(), "what is refused is not made");
}
