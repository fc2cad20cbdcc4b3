//! The real agent programs in trouble: what is tried again, what waits for a person, and that nothing is lost.

use crate::support::desk::{Desk, ITEM, SECRET_WORD};
use crate::support::{processes, wait_until};
use serde_json::{Value, json};

const UNKNOWN: &str = "01a22f49-0000-7000-8000-000000000000";

/// A model that is busy or in trouble is asked again later; one that wants to know who asks waits for a person.
fn check_refusals(desk: &Desk, refusals: [(u16, &str); 3]) {
    for (status, words) in refusals {
        let delivery = format!("delivery-{status}");
        desk.model.refuse(status);
        desk.comment(&delivery, &format!("This meets {status}."));
        let turns = |state: &str| {
            let of_it = |turn: &Value| turn["deliveries"] == json!([delivery]) && turn["state"] == state;
            desk.server.turns().into_iter().filter(of_it).collect::<Vec<_>>()
        };
        wait_until("a turn fails", || !turns("failed").is_empty());
        let needs_a_person = status == 401;
        if needs_a_person {
            wait_until("it waits for a person", || desk.row()["needs_attention"] != Value::Null);
            let row = desk.row();
            assert!(row["needs_attention"].to_string().contains("; sign in to "), "{row}");
        }
        desk.model.accept();
        if needs_a_person {
            desk.server.ok(&["sessions", "resume", ITEM]);
        }
        wait_until("a turn succeeds", || !turns("succeeded").is_empty());
        for turn in turns("failed") {
            assert!(turn["error"].as_str().is_some_and(|error| error.contains(words)), "{turn}");
        }
        assert_eq!(desk.server.decided(&delivery)["outcome"], "delivered");
    }
    let row = desk.row();
    assert_eq!((&row["needs_attention"], &row["pending"]), (&Value::Null, &0.into()), "{row}");
}

#[test]
fn refusals_of_claudes_model_are_told_apart() {
    let Some(desk) = Desk::with_claude() else { return };
    check_refusals(&desk, [(429, "429"), (500, "500"), (401, "authenticate")]);
}

#[test]
fn refusals_of_codexs_model_are_told_apart() {
    let Some(desk) = Desk::with_codex() else { return };
    check_refusals(&desk, [(429, "429"), (500, "high demand"), (401, "401")]);
}

/// A conversation that is not there is not begun anew: its news wait for a person, who names another.
fn check_gone(desk: &Desk) {
    let known = desk.model.asked().len();
    desk.server.ok(&["sessions", "register", ITEM, "--force", "--harness", desk.harness, "--session-id", UNKNOWN]);
    desk.comment("delivery-1", "Where are you?");
    wait_until("it waits for a person", || desk.row()["needs_attention"] != Value::Null);
    let row = desk.row();
    assert!(row["needs_attention"].to_string().contains("register another conversation"), "{row}");
    assert_eq!((&row["pending"], desk.model.asked().len()), (&1.into(), known), "{row}");
    desk.server.ok(&[
        "sessions",
        "register",
        ITEM,
        "--force",
        "--harness",
        desk.harness,
        "--session-id",
        &desk.session,
    ]);
    assert_eq!(desk.last_turn("succeeded")["deliveries"], json!(["delivery-1"]));
    desk.check_conversation(&[SECRET_WORD, "Where are you?"]);
}

#[test]
fn a_conversation_that_claude_does_not_know_waits_for_a_person() {
    let Some(desk) = Desk::with_claude() else { return };
    check_gone(&desk);
}

#[test]
fn a_conversation_that_codex_does_not_know_waits_for_a_person() {
    let Some(desk) = Desk::with_codex() else { return };
    check_gone(&desk);
}

/// codex refuses a second writer: the turn waits until the person at the terminal is done, however long that takes.
#[test]
fn codex_is_not_woken_while_a_person_uses_the_conversation() {
    let Some(desk) = Desk::with_codex() else { return };
    desk.model.hold();
    let by_hand =
        desk.start_by_hand(&["exec", "resume", "--json", "--skip-git-repo-check", &desk.session, "-"], "By hand.");
    wait_until("the model is asked", || desk.model.asked().len() == 2);
    desk.comment("delivery-1", "From afar.");
    // More than max_attempts: being busy is no attempt.
    wait_until("turns find it busy", || desk.server.turns().len() > 6);
    assert_eq!(desk.model.asked().len(), 2);
    desk.model.release();
    assert!(by_hand.wait_with_output().expect("its output").status.success());
    let turn = desk.last_turn("succeeded");
    assert_eq!(turn["attempt"], 1, "{turn}");
    desk.check_conversation(&[SECRET_WORD, "By hand.", "From afar."]);
}

/// An agent program that is killed is started again, in the same conversation.
fn check_killed_program(desk: &Desk) {
    desk.model.hold();
    desk.comment("delivery-1", "Please go on with PELICAN.");
    wait_until("the model is asked", || desk.model.asked().len() == 2);
    processes::children(&processes::shim(&desk.server, 1)).iter().for_each(|child| processes::kill(child));
    wait_until("the turn fails", || desk.server.turns()[0]["state"] == "failed");
    desk.model.release();
    let turn = desk.last_turn("succeeded");
    assert_eq!(turn["attempt"], 2, "{turn}");
    desk.check_conversation(&[SECRET_WORD, "Please go on with PELICAN.", "Please go on with PELICAN."]);
}

#[test]
fn claude_is_killed_and_started_again() {
    let Some(desk) = Desk::with_claude() else { return };
    check_killed_program(&desk);
}

#[test]
fn codex_is_killed_and_started_again() {
    let Some(desk) = Desk::with_codex() else { return };
    check_killed_program(&desk);
}

/// Server, supervisor and program die at once, as when the power fails: the turn is told again.
fn check_power_cut(mut desk: Desk) {
    desk.model.hold();
    desk.comment("delivery-1", "Please go on with PELICAN.");
    wait_until("the model is asked", || desk.model.asked().len() == 2);
    let shim = processes::shim(&desk.server, 1);
    let children = processes::children(&shim);
    desk.server.kill();
    processes::kill(&shim);
    children.iter().for_each(|child| processes::kill(child));
    desk.model.release();
    desk.server.serve(&[]);
    let turn = desk.last_turn("succeeded");
    let turns = desk.server.turns();
    assert_eq!((turns.len(), &turns[0]["state"], &turn["turn"]), (2, &"interrupted".into(), &2.into()), "{turns:?}");
    assert_eq!(desk.model.asked().len(), 3);
    desk.check_conversation(&[SECRET_WORD, "Please go on with PELICAN.", "Please go on with PELICAN."]);
}

#[test]
fn claude_goes_on_after_a_power_cut() {
    let Some(desk) = Desk::with_claude() else { return };
    check_power_cut(desk);
}

#[test]
fn codex_goes_on_after_a_power_cut() {
    let Some(desk) = Desk::with_codex() else { return };
    check_power_cut(desk);
}

/// Server and supervisor die, the program lives on and answers: Claude Code knows the message when it is told again.
#[test]
fn a_turn_of_claude_that_was_done_unseen_is_not_done_again() {
    let Some(mut desk) = Desk::with_claude() else { return };
    desk.model.hold();
    desk.comment("delivery-1", "Please go on with PELICAN.");
    wait_until("the model is asked", || desk.model.asked().len() == 2);
    let shim = processes::shim(&desk.server, 1);
    let children = processes::children(&shim);
    desk.server.kill();
    processes::kill(&shim);
    desk.model.release();
    wait_until("claude is done", || !children.iter().any(|child| processes::runs(child)));
    desk.server.serve(&[]);
    desk.last_turn("succeeded");
    let states: Vec<_> = desk.server.turns().iter().map(|turn| turn["state"].clone()).collect();
    assert_eq!(states, ["interrupted", "succeeded"]);
    assert_eq!(desk.model.asked().len(), 2, "the model was asked again");
    desk.tell("delivery-2", "And now STORK.");
    desk.check_conversation(&[SECRET_WORD, "Please go on with PELICAN.", "And now STORK."]);
}

/// A turn that is cancelled ends with its program, and is not told again.
fn check_cancel(desk: &Desk) {
    desk.model.hold();
    desk.comment("delivery-1", "Please go on with PELICAN.");
    wait_until("the model is asked", || desk.model.asked().len() == 2);
    let children = processes::children(&processes::shim(&desk.server, 1));
    desk.server.ok(&["turns", "cancel", "1"]);
    desk.last_turn("cancelled");
    assert!(!children.is_empty() && children.iter().all(|child| !processes::runs(child)));
    assert_eq!(desk.server.decided("delivery-1")["outcome"], "failed");
    desk.model.release();
    desk.tell("delivery-2", "And now STORK.");
    desk.check_conversation(&[SECRET_WORD, "Please go on with PELICAN.", "And now STORK."]);
}

#[test]
fn a_turn_of_claude_is_cancelled() {
    let Some(desk) = Desk::with_claude() else { return };
    check_cancel(&desk);
}

#[test]
fn a_turn_of_codex_is_cancelled() {
    let Some(desk) = Desk::with_codex() else { return };
    check_cancel(&desk);
}
