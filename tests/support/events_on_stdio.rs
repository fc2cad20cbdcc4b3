//! The events server as a program on standard input and output: the test starts itself once more, and this passes on
//! what is said between the pipe and the server in the first one.
#![allow(clippy::exit, reason = "a program that nobody hears any more ends")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::events::EVENTS_AT;

type Open = Arc<Mutex<HashMap<String, TcpStream>>>;

/// Passes on until the input ends. Does nothing where the test was not started as a program.
pub fn on_stdio() {
    let Ok(address) = std::env::var(EVENTS_AT) else { return };
    let open = Open::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if message["method"] == "notifications/cancelled" {
            let cancelled =
                open.lock().unwrap_or_else(PoisonError::into_inner).remove(&message["params"]["requestId"].to_string());
            drop(cancelled.map(|stream| stream.shutdown(Shutdown::Both)));
        }
        if message.get("id").is_none() {
            continue;
        }
        let (address, open) = (address.clone(), Arc::clone(&open));
        std::thread::spawn(move || pass_on(&address, &open, &message, &line));
    }
}

fn pass_on(address: &str, open: &Open, message: &Value, line: &str) {
    let Ok(mut stream) = TcpStream::connect(address) else { std::process::exit(1) };
    let id = message["id"].to_string();
    open.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), stream.try_clone().expect("a clone"));
    let head = format!("POST /mcp HTTP/1.1\r\ncontent-length: {}\r\n\r\n{line}", line.len());
    if stream.write_all(head.as_bytes()).is_err() {
        return;
    }
    let mut reader = BufReader::new(stream);
    let (mut text, mut length) = (String::new(), None);
    while reader.read_line(&mut text).is_ok_and(|count| count > 2) {
        length = text.strip_prefix("content-length: ").and_then(|length| length.trim().parse().ok()).or(length);
        text.clear();
    }
    if let Some(length) = length {
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_ok() {
            say(&body);
        }
    } else {
        for line in reader.lines().map_while(Result::ok) {
            if let Some(frame) = line.strip_prefix("data: ") {
                say(frame.as_bytes());
            }
        }
    }
    open.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
}

/// One message, whole. Who cannot be heard any more ends.
fn say(message: &[u8]) {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(message).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    if said.is_err() {
        std::process::exit(0);
    }
}
