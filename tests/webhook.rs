//! The receiver, over real sockets: what is taken, what is refused and why, and what nobody can do to others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Server, payloads, sign, wait_until};
use serde_json::json;

const SECRET: &str = crate::support::SECRET;

/// The headers of a delivery with this body, signed as it stands.
fn signed<'a>(delivery: &'a str, signature: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("content-type", "application/json"),
        ("x-github-event", "issue_comment"),
        ("x-github-delivery", delivery),
        ("x-hub-signature-256", signature),
    ]
}

fn take(server: &Server, delivery: &str, body: &[u8], signature: &str) -> (u16, String) {
    server.deliver_raw(&signed(delivery, signature), body).expect("an answer")
}

/// A connection on which bytes are sent by hand.
fn connect(server: &Server) -> TcpStream {
    let address = server.url().trim_start_matches("http://").split('/').next().expect("an address").to_owned();
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream
}

/// A figure of `/proc/PID/status`, in MiB: `VmRSS` (memory now) or `VmHWM` (the peak).
fn memory_mib(server: &Server, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("a status");
    let line = status.lines().find(|line| line.starts_with(figure)).expect("a figure");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") >> 10
}

#[test]
fn bytes_are_verified_not_values() {
    let server = Server::start("");
    let text = payloads::issue_comment(1, "™ … 🦀 \u{202e}right to left").to_string();
    let bodies = [
        text.clone(),
        text.replace("\"action\":", "\"action\" :  "),
        text.replacen('{', "{\"x\":1.0,\"y\":1e2,\"x\":2,", 1),
        text.replace('/', "\\/"),
        format!("\n{text}\n"),
    ];
    for (number, body) in bodies.iter().enumerate() {
        let (status, answer) = take(&server, &format!("d-{number}"), body.as_bytes(), &sign(SECRET, body.as_bytes()));
        assert_eq!(status, 202, "{answer} for {body}");
    }
}

#[test]
fn a_body_that_a_relay_printed_again_is_refused_and_the_log_says_why() {
    let server = Server::start("");
    let payload = payloads::issue_comment(1, "hello");
    let signature = sign(SECRET, payload.to_string().as_bytes());
    let printed = serde_json::to_string_pretty(&payload).expect("printed");
    let (status, answer) = take(&server, "d-relay", printed.as_bytes(), &signature);
    assert_eq!(status, 401, "{answer}");
    wait_until("the log names the relay", || server.log().contains("relay"));
    let log = server.log();
    assert!(log.contains("d-relay") && log.contains("issue_comment"), "{log}");
    assert!(!log.contains(&signature["sha256=".len()..]) && !log.contains(SECRET), "{log}");
    wait_until("the doctor knows of it", || {
        String::from_utf8_lossy(&server.cli(&["doctor"]).stdout).contains("relay may have parsed")
    });
}

#[test]
fn form_bodies_need_exactly_one_payload() {
    let server = Server::start("");
    let payload = payloads::issue_comment(1, "a b & c").to_string();
    let encoded: String = payload.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let cases = [
        (format!("payload={encoded}"), 202),
        (format!("extra=1&payload={encoded}&more=2"), 202),
        (format!("payload={encoded}&payload={encoded}"), 400),
        ("other=1".to_owned(), 400),
    ];
    for (number, (body, wanted)) in cases.iter().enumerate() {
        let (id, signature) = (format!("d-{number}"), sign(SECRET, body.as_bytes()));
        let mut headers = signed(&id, &signature);
        headers[0] = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let (status, answer) = server.deliver_raw(&headers, body.as_bytes()).expect("an answer");
        assert_eq!(status, *wanted, "{answer} for {}", &body[..20.min(body.len())]);
    }
}

#[test]
fn a_query_and_one_trailing_slash_are_the_same_place() {
    let server = Server::start("");
    for (path, wanted) in
        [("/gh-webhook/", "405"), ("/gh-webhook?x=1", "405"), ("/gh-webhook//", "404"), ("/other", "404")]
    {
        let mut stream = connect(&server);
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")) && answer.contains("reason"), "{path}: {answer}");
    }
    assert_eq!(server.get("/readyz").expect("an answer").0, 200);
    assert_eq!(server.get("/healthz").expect("an answer").0, 200);
}

#[test]
fn a_stalled_sender_is_cut_off_and_costs_nobody_else_anything() {
    let server = Server::start("[gh_webhook]\nread_timeout = \"1s\"\n");
    let body = payloads::issue_comment(1, "slow").to_string();
    let signature = sign(SECRET, body.as_bytes());
    let mut stalled: Vec<_> = (0..20)
        .map(|number| {
            let mut stream = connect(&server);
            write!(
                stream,
                "POST /gh-webhook HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-github-event: issue_comment\r\n\
                 x-github-delivery: stall-{number}\r\nx-hub-signature-256: {signature}\r\ncontent-length: 25000000\r\n\r\n{{\"a\""
            )
            .expect("sent");
            stream
        })
        .collect();
    let began = Instant::now();
    assert_eq!(server.post("issue_comment", &payloads::issue_comment(1, "quick")).0, 202);
    assert!(began.elapsed() < Duration::from_secs(1), "it waited behind the stalled ones");
    for stream in &mut stalled {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer before the end");
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[test]
fn many_large_bodies_at_once_do_not_fill_the_memory() {
    let server = Server::start("[gh_webhook]\nmax_in_flight = \"64MiB\"\n");
    let body = vec![b'x'; 24 << 20];
    let wrong = format!("sha256={}", "0".repeat(64));
    std::thread::scope(|scope| {
        for number in 0..12 {
            let (server, body, wrong) = (&server, &body, &wrong);
            // Half of them do not even look signed; the others are, wrongly, and must be read to know.
            let signature = if number % 2 == 0 { "none" } else { wrong.as_str() };
            scope.spawn(move || {
                // A sender that is refused while it sends may see its connection closed.
                if let Ok((status, answer)) = server.deliver_raw(&signed(&format!("d-{number}"), signature), body) {
                    assert!([401, 503].contains(&status), "{status} {answer}");
                }
            });
        }
    });
    assert_eq!(server.post("issue_comment", &payloads::issue_comment(1, "after")).0, 202);
    let peak = memory_mib(&server, "VmHWM");
    assert!(peak < 160, "{peak} MiB at the peak");
}

#[test]
fn large_bodies_that_were_taken_leave_no_memory_behind() {
    let server = Server::start("");
    let mut payload = payloads::issue_comment(1, "large");
    payload["filler"] = vec![payloads::issue_comment(1, "filler"); 26_000].into();
    let body = payload.to_string().into_bytes();
    assert!(body.len() > 20 << 20 && body.len() < 25 << 20, "{} bytes", body.len());
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (server, body) = (&server, &body);
            let signature = sign(SECRET, body);
            scope.spawn(move || {
                let answer = server.deliver_raw(&signed(&format!("d-{number}"), &signature), body);
                assert!(matches!(answer, Ok((202, _))), "{answer:?}");
            });
        }
    });
    wait_until("the memory is given back", || memory_mib(&server, "VmRSS") < 100);
    assert_eq!(server.decided("d-3")["outcome"], "unmatched");
}

#[test]
fn an_endless_body_ends_at_the_limit() {
    let server = Server::start("[gh_webhook]\nmax_body = \"1MiB\"\n");
    let mut stream = connect(&server);
    let signature = format!("sha256={}", "0".repeat(64));
    write!(
        stream,
        "POST /gh-webhook HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-github-event: push\r\n\
         x-github-delivery: d\r\nx-hub-signature-256: {signature}\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .expect("sent");
    let chunk = format!("10000\r\n{}\r\n", "y".repeat(0x10000));
    let mut sent = 0;
    // The kernel takes some megabytes before it says that nobody reads.
    while sent < 2048 && stream.write_all(chunk.as_bytes()).is_ok() {
        sent += 1;
    }
    assert!(sent < 2048, "128 MiB were taken");
    // The answer may be lost where the sender goes on sending; the next one is served.
    assert_eq!(server.post("issue_comment", &payloads::issue_comment(1, "after")).0, 202);
}

#[test]
fn an_unsigned_request_never_touches_the_dedup_store() {
    let server = Server::start("");
    let body = payloads::issue_comment(1, "x").to_string();
    assert_eq!(take(&server, "d-1", body.as_bytes(), &format!("sha256={}", "0".repeat(64))).0, 401);
    assert_eq!(take(&server, "d-1", body.as_bytes(), &sign(SECRET, body.as_bytes())).0, 202);
    let (status, answer) = take(&server, "d-1", body.as_bytes(), &sign(SECRET, body.as_bytes()));
    assert!(status == 200 && answer.contains("duplicate"), "{status} {answer}");
}

#[test]
fn bad_names_in_headers_are_refused() {
    let server = Server::start("");
    let body = payloads::issue_comment(1, "x").to_string();
    let signature = sign(SECRET, body.as_bytes());
    for (name, value) in [("x-github-event", "Issue Comment"), ("x-github-delivery", "a b"), ("x-github-delivery", "")]
    {
        let mut headers = signed("d-1", &signature);
        headers.iter_mut().filter(|header| header.0 == name).for_each(|header| header.1 = value);
        let (status, answer) = server.deliver_raw(&headers, body.as_bytes()).expect("an answer");
        assert_eq!(status, 400, "{name}: {answer}");
    }
}

#[test]
fn the_secret_is_in_no_file_of_ours() {
    let mut server = Server::start("[routing]\ndebounce = \"0s\"\n");
    server.register("octo-org/demo#1", "claude", "s-1");
    assert_eq!(server.post("issue_comment", &payloads::issue_comment(1, "x")).0, 202);
    server.ended_turns(1);
    assert_eq!(take(&server, "d-bad", b"{}", "sha256=00").0, 401);
    server.stop();
    assert!(!server.log().contains(SECRET));
    let found =
        std::process::Command::new("grep").args(["-rlaF", SECRET]).arg(server.path("state")).output().expect("grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn the_demonstration_does_the_main_job() {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_the-loop")).arg("demo").output().expect("ran");
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    for words in ["forged", "401", "duplicate", "mallory", "told in turn 1", "told in turn 2", "-----BEGIN DATA"] {
        assert!(text.contains(words), "{words} is missing: {text}");
    }
}

#[test]
fn a_test_delivery_can_be_sent_and_a_recorded_set_too() {
    let server = Server::start("[routing]\ndebounce = \"0s\"\n");
    server.register("octo-org/demo#1", "claude", "s-1");
    let said = server.ok(&["gh-webhook", "send", "--event", "issue_comment"]);
    assert!(said.contains("202"), "{said}");
    server.ended_turns(1);
    let set = server.path("recorded");
    std::fs::create_dir(&set).expect("made");
    std::fs::write(set.join("issue_comment.created.json"), payloads::issue_comment(9, "x").to_string())
        .expect("written");
    std::fs::write(set.join("ping.json"), json!({"zen": "x"}).to_string()).expect("written");
    let said = server.ok(&["gh-webhook", "send", "--payload", set.to_str().expect("a name")]);
    assert!(said.lines().count() == 2 && said.contains("pong"), "{said}");
}
