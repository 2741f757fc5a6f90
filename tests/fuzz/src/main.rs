//! libFuzzer with the target that `PROF_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use prof_fuzz::{ALL, Target};

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("PROF_FUZZ_TARGET").expect("PROF_FUZZ_TARGET names a target");
    ALL.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no target {name:?}"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
