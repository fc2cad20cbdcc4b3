//! Whose words and acts may wake an agent.

use super::{Trust, echo, names};
use crate::domain::{Author, Event, LinkKind, Nature, Person};

/// Whether `logins` has this person's. Logins compare without case.
fn lists(logins: &[String], person: &Person) -> bool {
    logins.iter().any(|login| login.eq_ignore_ascii_case(&person.login))
}

/// Whether a person is trusted whatever the association. A bot is one by its type, never by its name.
fn is_known(person: &Person, trust: &Trust) -> bool {
    lists(&trust.actors, person) || person.bot && lists(&trust.bots, person)
}

/// Whether an author is trusted with words of their own. A deleted account is nobody, whom nobody trusts.
fn is_trusted(author: &Author, trust: &Trust) -> bool {
    let Some(person) = &author.person else { return false };
    let association = || {
        let own = author.association.as_deref().unwrap_or_default();
        trust.associations.iter().any(|trusted| trusted.eq_ignore_ascii_case(own))
    };
    // An association is given to people; a bot has to be named.
    is_known(person, trust) || !person.bot && association()
}

/// Whether a verdict may travel over a link that rests on this author's words or push. The agent's own pull requests
/// count: it is their checks that it waits for.
pub(super) fn vouches(author: &Author, trust: &Trust) -> bool {
    is_trusted(author, trust) || author.person.as_ref().is_some_and(|person| lists(&trust.ignore_actors, person))
}

/// Why an event is our own agent's doing, if it is. A verdict never is: the agent's own push has its own checks.
pub(super) fn is_echo(event: &Event, trust: &Trust) -> Option<String> {
    if !matches!(event.nature, Nature::Words | Nature::State) {
        return None;
    }
    if let Some(sender) = event.sender.as_ref().filter(|sender| lists(&trust.ignore_actors, sender)) {
        return Some(format!("{} is in ignore_actors", names::login(sender)));
    }
    let bodies = event.facts.iter().filter(|fact| fact.name.ends_with(".body"));
    let marked = bodies.filter_map(|fact| fact.value.as_str()).any(echo::carries_marker);
    (event.nature == Nature::Words && marked).then(|| format!("the text carries the marker {}", echo::MARKER))
}

/// Why an event may not wake an agent, if it may not.
pub(super) fn refusal(event: &Event, trust: &Trust) -> Option<String> {
    match event.nature {
        Nature::Words => words(event, trust),
        Nature::State => state(event, trust),
        Nature::Verdict | Nature::Watched | Nature::Unmapped => None,
    }
}

/// Words need a trusted author and a trusted sender: an edit by another is not the author speaking.
fn words(event: &Event, trust: &Trust) -> Option<String> {
    let nobody = Author { person: None, association: None };
    let author = event.author.as_ref().unwrap_or(&nobody);
    if !is_trusted(author, trust) {
        return Some(format!("the author is not trusted: {}{}", names::author(author), how_to_trust(author)));
    }
    let Some(sender) = &event.sender else {
        return Some("the delivery names no sender, and nobody is trusted".into());
    };
    if is_same(sender, author) || lists(&trust.actors, sender) || is_owner(sender, event) {
        return None;
    }
    Some(format!(
        "{} acted on words of {}: only people in `actors` and the repository's owner may do that for another",
        names::login(sender),
        names::author(author)
    ))
}

/// A change of state needs a sender with rights.
///
/// GitHub lets only people with triage rights or more close, label, assign … an issue or pull request that is not
/// theirs, and only people with write access push, so who is not the author has shown rights by acting. Two exceptions:
/// a bot acts for anybody who can make it act, and commits come to a fork's branch from whoever may push there.
fn state(event: &Event, trust: &Trust) -> Option<String> {
    let Some(sender) = &event.sender else {
        return Some("the delivery names no sender, and nobody is trusted".into());
    };
    if is_known(sender, trust) {
        return None;
    }
    if sender.bot {
        return Some(format!("{} is a bot and not in `bots`", names::login(sender)));
    }
    match &event.author {
        Some(author) if is_same(sender, author) => (!is_trusted(author, trust)).then(|| {
            format!("{} acted on their own item and is not trusted{}", names::author(author), how_to_trust(author))
        }),
        Some(_) if is_push_to_fork(event) => {
            Some(format!("{} pushed to a fork, which takes no rights here", names::login(sender)))
        }
        _ => None,
    }
}

fn is_push_to_fork(event: &Event) -> bool {
    event.title() == "pull_request.synchronize" && !event.links.iter().any(|link| link.kind == LinkKind::HeadBranch)
}

fn is_same(person: &Person, author: &Author) -> bool {
    author.person.as_ref().is_some_and(|other| other.login.eq_ignore_ascii_case(&person.login))
}

fn is_owner(person: &Person, event: &Event) -> bool {
    event.repository.as_ref().is_some_and(|repository| repository.name.owner().eq_ignore_ascii_case(&person.login))
}

fn how_to_trust(author: &Author) -> &'static str {
    match &author.person {
        None => "",
        Some(person) if person.bot => " (a bot has to be in [trust] bots)",
        Some(_) => " (see [trust] associations and actors)",
    }
}
