//! Which GitHub repository a directory is a checkout of, asked of git.

use std::path::Path;
use std::process::{Command, Stdio};

use url::Url;

use crate::config::Environment;
use crate::domain::RepoName;

/// Variables by which git is pointed at another repository than the directory's, as inside a hook.
const GIT_POINTERS: &[&str] = &["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"];

/// The repository that `dir` is a checkout of: what gh was told, else by the remote that its branch follows, else
/// `origin`, else the only remote. Otherwise why not, in words that follow "and".
pub(super) fn repository(dir: &Path, environment: &Environment) -> Result<RepoName, String> {
    let git = |args: &[&str]| git(dir, environment, args);
    let remotes = git(&["remote"])?.ok_or_else(|| format!("`{}` is in no git repository", dir.display()))?;
    let remotes: Vec<&str> = remotes.lines().collect();
    // What a person told gh counts for us too: `gh repo set-default` notes it beside a remote.
    let set = git(&["config", "--get-regexp", r"^remote\..*\.gh-resolved$"])?.unwrap_or_default();
    let set = set.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        Some((key.strip_prefix("remote.")?.strip_suffix(".gh-resolved")?, value))
    });
    if let Some((remote, value)) = set.filter(|(remote, _)| remotes.contains(remote)) {
        let url = git(&["remote", "get-url", "--", remote])?.unwrap_or_default();
        let at_remote = from_remote(&url);
        let resolved = match value {
            "base" => at_remote,
            // On the remote's host, unless a host is named.
            name => match name.split('/').collect::<Vec<_>>()[..] {
                [host, owner, name] => RepoName::new(host, owner, name).ok(),
                _ => at_remote.and_then(|at| RepoName::from_full_name(at.host(), name).ok()),
            },
        };
        return resolved
            .ok_or_else(|| format!("what gh repo set-default says of `{remote}` names no GitHub repository"));
    }
    let branch = git(&["symbolic-ref", "--quiet", "--short", "HEAD"])?;
    let followed = match branch {
        Some(branch) => git(&["config", "--get", &format!("branch.{branch}.remote")])?,
        None => None,
    };
    let remote = followed
        .as_deref()
        .filter(|remote| remotes.contains(remote))
        .or_else(|| remotes.iter().copied().find(|remote| *remote == "origin"))
        .or(match remotes[..] {
            [only] => Some(only),
            _ => None,
        })
        .ok_or_else(|| match remotes.len() {
            0 => "the repository here has no remote".to_owned(),
            _ => format!("none of the remotes here ({}) is followed or called origin", remotes.join(", ")),
        })?;
    let url = git(&["remote", "get-url", "--", remote])?.ok_or_else(|| format!("the remote `{remote}` has no URL"))?;
    // The URL may hold a password: it is not told.
    from_remote(&url).ok_or_else(|| format!("the URL of the remote `{remote}` names no GitHub repository"))
}

/// What git answers; `None` where it answers no. An error is that git cannot be run.
fn git(dir: &Path, environment: &Environment, args: &[&str]) -> Result<Option<String>, String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(args).stdin(Stdio::null()).stderr(Stdio::null());
    for name in GIT_POINTERS.iter().filter(|name| environment.get(name).is_some()) {
        command.env_remove(name);
    }
    let output = command.output().map_err(|error| format!("git cannot be run ({error})"))?;
    let answer = String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned());
    Ok(answer.filter(|_| output.status.success()))
}

/// Reads `https://…`, `ssh://…`, `git://…` and `user@host:path`.
fn from_remote(text: &str) -> Option<RepoName> {
    let (host, path) = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "https" | "http") => {
            let host = url.host_str()?;
            let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
            (host, url.path().to_owned())
        }
        // The port is that of ssh, which says nothing of the web's.
        Ok(url) if matches!(url.scheme(), "ssh" | "git" | "git+ssh") => {
            (url.host_str()?.to_owned(), url.path().to_owned())
        }
        _ if text.contains("://") => return None,
        _ => {
            let (host, path) = text.split_once(':')?;
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            (host.to_owned(), path.to_owned())
        }
    };
    // A name without a dot is an alias of somebody's ssh configuration, not a host that GitHub would name.
    if !host.contains('.') {
        return None;
    }
    let host = match host.to_ascii_lowercase().as_str() {
        "www.github.com" | "ssh.github.com" => "github.com".to_owned(),
        _ => host,
    };
    let path = path.trim_matches('/');
    RepoName::from_full_name(&host, path.strip_suffix(".git").unwrap_or(path)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_remote_is_read() {
        for (url, repo) in [
            ("https://github.com/octo-org/demo.git", "octo-org/demo"),
            ("https://github.com/octo-org/demo/", "octo-org/demo"),
            ("https://user:token@github.com/octo-org/demo", "octo-org/demo"),
            ("git@github.com:octo-org/demo.git", "octo-org/demo"),
            ("github.com:octo-org/demo.git", "octo-org/demo"),
            ("ssh://git@github.com/octo-org/demo.git", "octo-org/demo"),
            ("ssh://git@ssh.github.com:443/octo-org/demo.git", "octo-org/demo"),
            ("git://github.com/octo-org/demo.git", "octo-org/demo"),
            ("git@ghe.example.com:octo-org/de.mo.git", "ghe.example.com/octo-org/de.mo"),
            ("https://ghe.example.com:8443/octo-org/demo", "ghe.example.com:8443/octo-org/demo"),
            ("ssh://git@ghe.example.com:2222/octo-org/demo", "ghe.example.com/octo-org/demo"),
        ] {
            assert_eq!(from_remote(url).map(|repo| repo.to_string()).as_deref(), Some(repo), "{url}");
        }
    }

    #[test]
    fn what_was_told_to_gh_counts() {
        let dir = tempfile::tempdir().expect("dir");
        let environment = Environment::of_this_process();
        let run = |args: &[&str]| super::git(dir.path(), &environment, args).expect("git").expect("done");
        run(&["init", "--quiet"]);
        run(&["remote", "add", "origin", "git@github.com:me/demo.git"]);
        run(&["remote", "add", "upstream", "https://github.com/octo-org/demo.git"]);
        let found = || repository(dir.path(), &environment).map(|repo| repo.to_string());
        assert_eq!(found().as_deref(), Ok("me/demo"));
        run(&["config", "remote.upstream.gh-resolved", "base"]);
        assert_eq!(found().as_deref(), Ok("octo-org/demo"));
        run(&["config", "remote.upstream.gh-resolved", "octo-org/other"]);
        assert_eq!(found().as_deref(), Ok("octo-org/other"));
    }

    #[test]
    fn what_names_no_repository_is_refused() {
        for url in [
            "/srv/git/demo.git",
            "../demo",
            "file:///srv/demo",
            "git@work:octo-org/demo.git",
            "https://github.com/demo",
            "git@github.com:a/b/c.git",
            "",
        ] {
            assert_eq!(from_remote(url), None, "{url}");
        }
    }
}
