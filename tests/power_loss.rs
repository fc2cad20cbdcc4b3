//! The power goes at any instant: a copy of the state, taken while the server stands still under load, opens and
//! recovers, and whatever was answered by then is in it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::payloads::issue_comment;
use crate::support::{SECRET, Server, sign, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use the_loop::registry::Registry;
use the_loop::store::{Access, Db, DeliveryFilter};

const COPIES: u64 = 40;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("the state") {
        let entry = entry.expect("an entry");
        let place = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &place);
        } else {
            // What a turn does meanwhile is another process's affair, and may vanish.
            drop(fs::copy(entry.path(), place));
        }
    }
}

#[test]
fn whatever_was_answered_is_in_every_copy() {
    let mut server = Server::new(
        "[routing]\ndebounce = \"10ms\"\n[dispatch]\nretry_backoff = \"20ms\"\nmax_turns_per_hour = 100000\n",
    );
    for number in 1..=8 {
        let cwd = server.path(&format!("work/{number}"));
        fs::create_dir(&cwd).expect("a directory");
        server.register_in(&format!("octo-org/demo#{number}"), "claude", &format!("s-{number}"), &cwd);
    }
    server.serve(&[]);
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("a process id");
    let answered = Arc::new(Mutex::new(BTreeSet::new()));
    let (stop, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let senders: Vec<_> = (0..3)
        .map(|_| {
            let (answered, stop, next, url) =
                (Arc::clone(&answered), Arc::clone(&stop), Arc::clone(&next), server.url().to_owned());
            std::thread::spawn(move || {
                let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let body = issue_comment(1 + number % 8, &format!("mark-{number:06}.")).to_string();
                    let answer = agent
                        .post(&url)
                        .header("X-GitHub-Event", "issue_comment")
                        .header("X-GitHub-Delivery", format!("d-{number}"))
                        .header("X-Hub-Signature-256", sign(SECRET, body.as_bytes()))
                        .header("Content-Type", "application/json")
                        .send(body.as_bytes());
                    assert_eq!(answer.expect("an answer").status().as_u16(), 202);
                    answered.lock().expect("the answered").insert(format!("d-{number}"));
                    std::thread::sleep(Duration::from_millis(3));
                }
            })
        })
        .collect();
    let copies = tempfile::tempdir().expect("a directory");
    for number in 0..COPIES {
        let so_far = answered.lock().expect("the answered").len();
        wait_until("more is answered", || answered.lock().expect("the answered").len() > so_far);
        // Any instant will do; this one moves against the rhythm of the commits.
        std::thread::sleep(Duration::from_micros(number * 397 % 7000));
        kill_process(pid, Signal::STOP).expect("stopped");
        let stat = format!("/proc/{}/stat", server.pid());
        wait_until("it stands still", || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")));
        let promised = answered.lock().expect("the answered").clone();
        let place = copies.path().join(number.to_string());
        copy(&server.path("state"), &place);
        kill_process(pid, Signal::CONT).expect("continued");
        // The shared memory is rebuilt after a power loss, and the last bytes of the log may be torn.
        fs::remove_file(place.join("the-loop.db-shm")).expect("the index");
        if number % 2 == 1 {
            let mut log = fs::OpenOptions::new().append(true).open(place.join("the-loop.db-wal")).expect("the log");
            std::io::Write::write_all(&mut log, &[0x5a; 3000]).expect("a torn tail");
        }
        let db = Db::open(&place, Access::Write).expect("the copy opens");
        let rows =
            db.list_deliveries(&DeliveryFilter { limit: usize::MAX, ..DeliveryFilter::default() }).expect("rows");
        let kept: BTreeSet<_> = rows.into_iter().map(|row| row.delivery).collect();
        assert!(promised.is_subset(&kept), "{:?} were answered and are gone", promised.difference(&kept));
        let listing = Registry::open(&place).and_then(|registry| registry.read()).expect("sessions");
        assert_eq!((listing.sessions.len(), listing.damaged.len()), (8, 0));
        let check: String = rusqlite::Connection::open(place.join("the-loop.db"))
            .and_then(|raw| raw.query_row("PRAGMA integrity_check", (), |row| row.get(0)))
            .expect("checked");
        assert_eq!(check, "ok");
    }
    stop.store(true, Ordering::Relaxed);
    senders.into_iter().for_each(|sender| sender.join().expect("a sender"));
    // A server on the last copy finishes what the first had been given.
    wait_until("all is told", || {
        server.json(&["sessions", "list"]).as_array().expect("rows").iter().all(|row| row["pending"] == 0)
    });
    server.stop();
    fs::remove_dir_all(server.path("state")).expect("removed");
    copy(&copies.path().join((COPIES - 1).to_string()), &server.path("state"));
    server.serve(&[]);
    wait_until("the copy comes to rest", || {
        let rows = server.json(&["deliveries", "list", "--limit", "1000000"]);
        rows.as_array().expect("rows").iter().all(|row| row["outcome"] == "delivered")
    });
}
