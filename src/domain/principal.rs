//! Principals: who may read the feed, and what of it.

use super::Occurrence;

/// What a principal may see.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Access {
    /// `OWNER/REPO`, `OWNER/*` or the same after a host; everything where there is none.
    pub repositories: Option<Vec<String>>,
    /// The logins under which the principal acts: it is not told what it did itself.
    pub acts_as: Vec<String>,
}

impl Access {
    /// Whether a repository, by its key, may be seen. What happened in no repository is for those who see everything.
    pub fn allows(&self, repository: Option<&str>) -> bool {
        let Some(patterns) = &self.repositories else { return true };
        let Some(key) = repository.map(str::to_ascii_lowercase) else { return false };
        patterns.iter().any(|pattern| {
            let pattern = pattern.to_ascii_lowercase();
            match pattern.strip_suffix('*') {
                Some(owner) => key.rsplit_once('/').is_some_and(|(of, _)| format!("{of}/") == owner),
                None => pattern == key,
            }
        })
    }

    /// Whether this occurrence is to be told to the principal.
    pub fn sees(&self, occurrence: &Occurrence) -> bool {
        let own = |actor: &str| self.acts_as.iter().any(|login| login.eq_ignore_ascii_case(actor));
        self.allows(occurrence.repository.as_deref()) && !occurrence.actor.as_deref().is_some_and(own)
    }
}

/// Somebody who reads the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The configured name.
    pub name: String,
    /// What it may see.
    pub access: Access,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_one_repository_or_all_of_an_owner() {
        let access = |patterns: &[&str]| Access {
            repositories: Some(patterns.iter().map(|p| (*p).to_owned()).collect()),
            acts_as: Vec::new(),
        };
        let table: &[(&[&str], Option<&str>, bool)] = &[
            (&["octo-org/demo"], Some("octo-org/demo"), true),
            (&["Octo-Org/Demo"], Some("octo-org/demo"), true),
            (&["octo-org/demo"], Some("octo-org/demo2"), false),
            (&["octo-org/*"], Some("octo-org/demo"), true),
            (&["octo-org/*"], Some("octo-organ/demo"), false),
            (&["octo-org/*"], Some("ghe.example/octo-org/demo"), false),
            (&["ghe.example/octo-org/*"], Some("ghe.example/octo-org/demo"), true),
            (&["octo-org/*"], None, false),
            (&[], Some("octo-org/demo"), false),
        ];
        for (patterns, repository, wanted) in table {
            assert_eq!(access(patterns).allows(*repository), *wanted, "{patterns:?} {repository:?}");
        }
        assert!(Access::default().allows(None));
    }
}
