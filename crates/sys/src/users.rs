//! Users by name and number.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Error, foreign};

/// The number of a user, by a name or a number.
///
/// # Errors
///
/// There is no user of this name.
pub fn id(user: &str) -> Result<u32, Error> {
    /// A longer file is that of no machine.
    const MOST_BYTES: u64 = 16 << 20;
    if let Ok(id) = user.parse() {
        return Ok(id);
    }
    let unknown =
        || Error::usage(format!("no user '{user}'; 'ps -eo user' lists those of processes"));
    if user.is_empty() || user.starts_with('-') || user.contains([':', '\n', '\0']) {
        return Err(unknown());
    }
    let file = foreign::read(Path::new("/etc/passwd"), MOST_BYTES).unwrap_or_default();
    let local = id_in(&String::from_utf8_lossy(&file), user);
    local.or_else(|| id_in(&from_directories(user), user)).ok_or_else(unknown)
}

/// The entry of a user who is in a directory such as LDAP; empty if there is none.
fn from_directories(user: &str) -> String {
    let mut query = Command::new("getent");
    query.args(["passwd", user]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = query.output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).into_owned()
}

/// The number of a user in lines as of `passwd(5)`.
fn id_in(lines: &str, user: &str) -> Option<u32> {
    let mut entries = lines.lines().map(|line| line.split(':'));
    entries.find_map(|mut fields| (fields.next()? == user).then(|| fields.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_numbers() {
        let lines = "root:x:0:0:root:/root:/bin/sh\nbad\nbad:x\n\nwww:x:33:33::/:/bin/false\n";
        assert_eq!([id_in(lines, "root"), id_in(lines, "www")], [Some(0), Some(33)]);
        assert_eq!([id_in(lines, "bad"), id_in(lines, "ww"), id_in("", "")], [None; 3]);
        assert_eq!(id("root").unwrap(), 0);
        assert_eq!(id("12345").unwrap(), 12345);
        for unknown in ["", "no-such-user", "-1", "root:x", "4294967296"] {
            assert!(id(unknown).unwrap_err().to_string().contains("no user"), "{unknown}");
        }
    }
}
