//! Secrets: read from the environment only, when they are needed.

use super::{Environment, Error};
use crate::domain::Secret;

/// The secrets that the variables hold, in order. A variable that is unset, empty or blank holds none; where none does,
/// that is an error. One trailing line end, which a shell or a file left there, is no part of a secret.
pub fn secrets(names: &[String], environment: &Environment) -> Result<Vec<Secret>, Error> {
    let read = |name: &String| {
        let bytes = environment.bytes(name)?;
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        (!bytes.trim_ascii().is_empty()).then(|| Secret::new(name.clone(), bytes))
    };
    let found: Vec<Secret> = names.iter().filter_map(read).collect();
    if found.is_empty() { Err(Error::NoSecret(names.to_vec())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<Vec<Vec<u8>>, String> {
        let environment = values.iter().copied().collect();
        let names = ["A", "B"].map(String::from);
        secrets(&names, &environment)
            .map(|found| found.iter().map(|s| s.expose().to_vec()).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn blank_is_no_secret() {
        for values in [&[][..], &[("A", "")], &[("A", " \t"), ("B", "\n")]] {
            let error = read(values).expect_err("a blank secret was taken");
            assert!(error.contains("`A`") && error.contains("`B`"), "{error}");
        }
    }

    #[test]
    fn all_that_are_set_count_without_their_line_end() {
        assert_eq!(read(&[("A", "new\n"), ("B", "old\r\n")]), Ok(vec![b"new".to_vec(), b"old".to_vec()]));
        assert_eq!(read(&[("B", " kept as it is ")]), Ok(vec![b" kept as it is ".to_vec()]));
    }
}
