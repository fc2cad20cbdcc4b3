//! Callbacks are someone else's choice: whatever a name server answers, and however it changes its mind between a
//! check and a connection, nothing in the house gets a connection.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::RootCertStore;
use the_loop::clients::{Callback, Exception, Lookup, PostError, Poster};

/// A name server that gives one answer after the other, and the last one for ever.
#[derive(Clone)]
struct Changing {
    answers: Arc<Mutex<VecDeque<Vec<IpAddr>>>>,
    asked: Arc<AtomicUsize>,
}

impl Changing {
    fn new(answers: &[&[&str]]) -> Self {
        let parse = |list: &&[&str]| list.iter().map(|text| text.parse().expect("an address")).collect();
        Self { answers: Arc::new(Mutex::new(answers.iter().map(parse).collect())), asked: Arc::default() }
    }
}

impl Lookup for Changing {
    async fn lookup(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().expect("answers");
        let next = answers.front().cloned().unwrap_or_default();
        if answers.len() > 1 {
            answers.pop_front();
        }
        Ok(next)
    }
}

fn rustls_roots() -> RootCertStore {
    RootCertStore::empty()
}

/// A listener in the house, which nobody may reach.
fn house() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.set_nonblocking(true).expect("nonblocking");
    listener
}

fn untouched(listener: &TcpListener) -> bool {
    matches!(listener.accept(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn names_that_lead_into_the_house_get_no_connection() {
    let house = house();
    let port = house.local_addr().expect("an address").port();
    for answers in [
        &["127.0.0.1"][..],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["fd00::1"],
        // One good address beside a bad one makes the bad one no better.
        &["1.1.1.1", "127.0.0.1"],
        &["127.0.0.1", "2606:4700::1111"],
        &[],
    ] {
        let poster = Poster::with(Changing::new(&[answers]), rustls_roots()).expect("a poster");
        let callback = Callback::check(&format!("https://hooks.example:{port}/x"), &[]).expect("a callback");
        let posted = poster.post(&callback, &[], b"{}".to_vec()).await;
        assert_eq!(posted, Err(PostError::ConnectionRefused), "{answers:?}");
    }
    assert!(untouched(&house), "a connection was made");
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_caught_when_connecting() {
    let house = house();
    let port = house.local_addr().expect("an address").port();
    // Public when it is first asked for, in the house ever after.
    let names = Changing::new(&[&["192.0.9.9"], &["127.0.0.1"]]);
    let poster = Poster::with(names.clone(), rustls_roots()).expect("a poster");
    let callback = Callback::check(&format!("https://hooks.example:{port}/x"), &[]).expect("a callback");
    assert!(poster.post(&callback, &[], b"{}".to_vec()).await.is_err());
    assert_eq!(names.asked.load(Ordering::SeqCst), 1, "the name was looked up again between check and connection");
    assert_eq!(poster.post(&callback, &[], b"{}".to_vec()).await, Err(PostError::ConnectionRefused));
    assert!(untouched(&house), "a connection was made");
}

#[tokio::test]
async fn what_is_excepted_is_reached_and_its_redirects_are_not_followed() {
    let house = house();
    let port = house.local_addr().expect("an address").port();
    let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a listener");
    elsewhere.set_nonblocking(true).expect("nonblocking");
    let target = elsewhere.local_addr().expect("an address");
    house.set_nonblocking(false).expect("blocking");
    let served = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = house.accept().expect("a connection");
        let mut seen = Vec::new();
        let mut part = [0; 1024];
        while !seen.ends_with(b"{}") {
            let count = stream.read(&mut part).expect("a request");
            seen.extend_from_slice(&part[..count]);
        }
        let answer =
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{target}/\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).expect("an answer");
        String::from_utf8(seen).expect("text")
    });
    let exceptions = [Exception::parse("http://127.0.0.1:*").expect("an exception")];
    let callback = Callback::check(&format!("http://127.0.0.1:{port}/hook?a=b#c"), &exceptions).expect("a callback");
    let poster = Poster::with(Changing::new(&[]), rustls_roots()).expect("a poster");
    let posted = poster.post(&callback, &[("webhook-id", "m-1".into())], b"{}".to_vec()).await.expect("an answer");
    assert_eq!(posted.status, 307);
    let request = served.join().expect("served");
    assert!(request.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("webhook-id: m-1\r\n"), "{request}");
    assert!(untouched(&elsewhere), "the redirect was followed");
}
