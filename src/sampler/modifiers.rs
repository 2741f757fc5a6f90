//! Modifiers that follow an event's name: `cycles:u`, `instructions:kpp` (`perf-list(1)`).

use super::EventSpec;

/// The supported modifiers.
const TAKEN: &str = "ukhIHpP";

/// Modifiers that only perf has: guests of KVM, groups of events, BPF.
const OTHERS: &str = "GSDWeb";

/// True if perf has this modifier.
pub fn is_known(modifier: char) -> bool {
    TAKEN.contains(modifier) || OTHERS.contains(modifier)
}

/// Applies modifiers to an event that has none yet.
///
/// `I` (not idle) and `H` (not in guests) have no effect, because that is the default, and neither
/// does `h` (hypervisor) next to `u` or `k`: a hypervisor hides its own code.
///
/// # Errors
///
/// The reason why a modifier is unknown or not supported.
pub fn apply(spec: &mut EventSpec, modifiers: &str) -> Result<(), String> {
    const USE: &str = "use u (user), k (kernel), I (not idle), H (not in guests), p, pp, ppp or P \
                       (precise)";
    if modifiers.is_empty() {
        return Err(format!("no modifier follows the colon; {USE}"));
    }
    if let Some(other) = modifiers.chars().find(|&c| !TAKEN.contains(c)) {
        let why = if is_known(other) { "of perf is not supported" } else { "is unknown" };
        return Err(format!("modifier '{other}' {why}; {USE}"));
    }
    let user = modifiers.contains('u');
    let kernel = modifiers.contains('k');
    if user || kernel {
        (spec.user, spec.kernel) = (user, kernel);
    } else if modifiers.contains('h') {
        return Err(format!("a hypervisor's code cannot be sampled; {USE}"));
    }
    spec.precise = match modifiers.matches('p').count() {
        precise @ 0..=3 => precise as u8,
        _ => return Err(format!("'{modifiers}' is more precise than ppp; {USE}")),
    };
    spec.most_precise = spec.precise == 0 && modifiers.contains('P');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_modifier_is_done_or_refused() {
        let of = |modifiers: &str| {
            let mut spec = EventSpec::cycles();
            apply(&mut spec, modifiers).map(|()| (spec.user, spec.kernel, spec.precise))
        };
        assert_eq!(of("u"), Ok((true, false, 0)));
        assert_eq!(of("kpp"), Ok((false, true, 2)));
        assert_eq!(of("ukh"), Ok((true, true, 0)));
        assert_eq!(of("I"), Ok((true, true, 0)));
        assert_eq!(of("uH"), Ok((true, false, 0)));
        let mut spec = EventSpec::cycles();
        apply(&mut spec, "uP").unwrap();
        assert_eq!(
            (spec.user, spec.kernel, spec.precise, spec.most_precise),
            (true, false, 0, true)
        );
        for bad in ["", "h", "pppp", "G", "S", "D", "uW", "e", "b", "x"] {
            let why = of(bad).unwrap_err();
            assert!(why.contains("use u (user)"), "{why}");
        }
        assert!(of("uS").unwrap_err().contains("'S' of perf is not supported"));
        assert!(of("z").unwrap_err().contains("'z' is unknown"));
    }
}
