//! The token for a GitHub host, found where `gh` finds it.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::domain::Secret;

/// `gh` reads a file or asks the keyring; beyond this it waits for a person.
const PATIENCE: Duration = Duration::from_secs(10);
/// No token is longer.
const LONGEST: u64 = 4096;

/// The variables that hold a host's token, in the order of `gh` (`gh help environment`).
pub fn token_variables(host: &str) -> [&'static str; 2] {
    let host = host.to_ascii_lowercase();
    if host == "github.com" || host.ends_with(".ghe.com") {
        ["GH_TOKEN", "GITHUB_TOKEN"]
    } else {
        ["GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"]
    }
}

/// The token for `host`: from the variables, else from `gh auth token`. Otherwise why there is none, in words that
/// follow a colon. Blocks.
pub fn github_token(host: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Secret, String> {
    let names = token_variables(host);
    for name in names {
        if let Some(value) = variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty()) {
            return Ok(Secret::new(name, value));
        }
    }
    let why = match ask_gh(host) {
        Ok(token) => return Ok(token),
        Err(why) => why,
    };
    Err(format!("there is no token: {} are not set, and {why}", names.join(" and ")))
}

fn ask_gh(host: &str) -> Result<Secret, String> {
    // A host's name begins with no dash, so it cannot be an option.
    let mut child = Command::new("gh")
        .args(["auth", "token", "--hostname", host])
        .env("GH_PROMPT_DISABLED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("gh cannot be run ({error})"))?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                // Killed or gone already, it is waited for either way.
                drop(child.kill());
                drop(child.wait());
                return Err("gh auth token did not end in 10s".into());
            }
            Err(error) => return Err(format!("gh cannot be waited for ({error})")),
        }
    };
    let mut text = String::new();
    let read = child.stdout.take().map(|out| out.take(LONGEST).read_to_string(&mut text));
    match text.trim() {
        token if status.success() && !token.is_empty() && matches!(read, Some(Ok(_))) => {
            Ok(Secret::new("gh auth token", token))
        }
        _ => Err(format!("gh is not signed in to {host} (gh auth login --hostname {host})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_first_and_each_host_has_its_own() {
        let set = |name: &str| match name {
            "GITHUB_TOKEN" => Some("two\n".to_owned()),
            "GH_ENTERPRISE_TOKEN" => Some("three".to_owned()),
            _ => None,
        };
        let found = |host: &str| github_token(host, &set).map(|secret| secret.expose().to_vec());
        assert_eq!(found("github.com"), Ok(b"two".to_vec()));
        assert_eq!(found("ghe.example.com"), Ok(b"three".to_vec()));
        assert_eq!(found("octo.ghe.com"), Ok(b"two".to_vec()));
    }
}
