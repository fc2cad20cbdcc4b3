//! An MCP Events server over HTTP, told by the test what to do: it polls, streams, posts, repeats, refuses and forgets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// The variable that tells a program of ours where the server is that it stands for.
pub const EVENTS_AT: &str = "THE_LOOP_TEST_EVENTS_AT";

/// Makes the event of this number.
pub type Made = fn(usize) -> Value;

/// What the server does, and what it has seen.
#[derive(Default)]
pub struct Script {
    /// The ways of delivery that it offers.
    pub modes: Vec<&'static str>,
    /// Everything that happened, in order; the cursor is how much of it was told.
    pub events: Vec<Value>,
    /// In place of `events`: so many of them, each made when it is told.
    pub made: Option<(usize, Made)>,
    /// These methods are heard and not answered, as by a server that hangs.
    pub hang: Vec<&'static str>,
    /// The next polls tell more than they were asked for, as one that does not know `maxEvents`.
    pub pages_are_whole: bool,
    /// A replacement character is told as JavaScript writes half a character: as one half of a UTF-16 pair.
    pub halves: bool,
    /// How the cursors of polls are wrong.
    pub lie: Option<Lie>,
    /// Streams say nothing but a heartbeat each so often, and events.
    pub heartbeat: Option<Duration>,
    /// What polls answer as `nextPollMs`.
    pub next_poll_ms: Option<u64>,
    /// Requests that are answered with this error, by method: code and message.
    pub refuse: Vec<(&'static str, i64, &'static str)>,
    /// The next poll says that something is lost.
    pub truncate: bool,
    /// What happened before this is forgotten: who asks for it hears that something is lost, each time.
    pub history_from: usize,
    /// Polls tell the last event again.
    pub repeat: bool,
    /// Streams end after so many events.
    pub stream_ends_after: Option<usize>,
    /// Only the cursors of this life are known: others are refused as invalid.
    pub forget: bool,
    /// Every request: method and params.
    pub seen: Vec<(String, Value)>,
    /// Where subscribers are posted to, with their secrets.
    pub hooks: Vec<(String, String)>,
    /// How many streams are open.
    pub open_streams: usize,
    /// How many challenges were answered rightly.
    pub challenged: usize,
}

/// A server's untruths about where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// There is always more, and always a new cursor, but never anything new.
    Endless,
    /// After everything was told the cursor is that of the beginning.
    Backwards,
    /// The cursor is no text.
    Number,
}

impl Script {
    fn len(&self) -> usize {
        self.made.map_or(self.events.len(), |(count, _)| count)
    }

    fn slice(&self, range: Range<usize>) -> Vec<Value> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        match self.made {
            Some((_, make)) => range.map(make).collect(),
            None => self.events.get(range).unwrap_or_default().to_vec(),
        }
    }
}

/// One event as a server tells it.
pub fn event(id: &str, data: Value) -> Value {
    json!({"eventId": id, "name": "ticket.updated", "timestamp": "2026-11-30T12:00:00Z", "data": data})
}

/// The running server. It ends with the test's process.
#[derive(Clone)]
pub struct Events {
    script: Arc<Mutex<Script>>,
    changed: Arc<Condvar>,
    address: SocketAddr,
}

impl Events {
    /// A server that offers these ways of delivery.
    pub fn start(modes: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let script = Arc::new(Mutex::new(Script { modes: modes.to_vec(), ..Script::default() }));
        let events = Self { script, changed: Arc::default(), address };
        let serving = events.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let events = serving.clone();
                std::thread::spawn(move || events.serve(stream));
            }
        });
        events
    }

    /// The configuration that names it `ci`.
    pub fn table(&self) -> String {
        self.named("ci")
    }

    /// The configuration of it under a name.
    pub fn named(&self, name: &str) -> String {
        format!("[mcp.servers.{name}]\nurl = \"http://{}/mcp\"\n", self.address)
    }

    /// The configuration by which it is a program: these very tests, whose `on_stdio` is then run alone.
    pub fn as_program(&self, name: &str) -> String {
        let test = std::env::current_exe().expect("this test");
        format!(
            "[mcp.servers.{name}]\ncommand = {test:?}\nargs = [\"--exact\", \"on_stdio\", \"--ignored\", \"--nocapture\"]\n\
             env = {{ {EVENTS_AT} = \"{}\" }}\n",
            self.address
        )
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happens.
    pub fn emit(&self, id: &str, data: Value) {
        self.script().events.push(event(id, data));
        self.changed.notify_all();
    }

    /// How often a method was called.
    pub fn count(&self, method: &str) -> usize {
        self.script().seen.iter().filter(|(known, _)| known == method).count()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
        // An answer and its head are two writes; nobody is to wait for the second.
        stream.set_nodelay(true).expect("no delay");
        while let Some(body) = request(&mut reader) {
            let Ok(request) = serde_json::from_slice::<Value>(&body) else {
                drop(stream.write_all(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"));
                return;
            };
            if request.get("id").is_none() {
                drop(stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"));
                continue;
            }
            let method = request["method"].as_str().unwrap_or_default().to_owned();
            let params = request["params"].clone();
            self.script().seen.push((method.clone(), params.clone()));
            while self.script().hang.iter().any(|hung| *hung == method) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let refused = self.script().refuse.iter().find(|(known, ..)| *known == method).copied();
            let answer = match refused {
                Some((_, code, message)) => json!({"error": {"code": code, "message": message}}),
                None if method == "events/stream" => {
                    self.script().open_streams += 1;
                    self.stream(&mut stream, &request["id"], &params);
                    self.script().open_streams -= 1;
                    return;
                }
                None => self.answer(&method, &params),
            };
            let mut message = json!({"jsonrpc": "2.0", "id": request["id"]});
            for (name, value) in answer.as_object().expect("an object") {
                message[name] = value.clone();
            }
            let text = self.as_written(message.to_string());
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
            if stream.write_all(format!("{head}{}\r\n\r\n{text}", text.len()).as_bytes()).is_err() {
                return;
            }
        }
    }

    /// JSON text as this server writes it.
    fn as_written(&self, text: String) -> String {
        if self.script().halves { text.replace('\u{fffd}', "\\ud83d") } else { text }
    }

    fn answer(&self, method: &str, params: &Value) -> Value {
        let complete = |mut result: Value| {
            result["resultType"] = "complete".into();
            json!({"result": result})
        };
        match method {
            "server/discover" => complete(json!({"supportedVersions": ["2026-07-28"], "capabilities": {"events": {}},
                "serverInfo": {"name": "fake", "version": "1"}, "ttlMs": 0, "cacheScope": "private"})),
            "events/list" => complete(json!({"events": [{"name": "ticket.updated", "description": "A ticket changed.",
                "delivery": self.script().modes, "inputSchema": {"type": "object", "properties": {"ticket": {"type": "string"}}},
                "payloadSchema": {"type": "object"}}]})),
            "events/poll" => self.poll(params),
            "events/subscribe" => self.subscribe(params),
            "events/unsubscribe" => {
                let url = params["delivery"]["url"].as_str().unwrap_or_default().to_owned();
                self.script().hooks.retain(|(known, _)| *known != url);
                complete(json!({}))
            }
            _ => json!({"error": {"code": -32601, "message": "no such method"}}),
        }
    }

    fn poll(&self, params: &Value) -> Value {
        let mut script = self.script();
        let end = script.len();
        let Some(cursor) = params["cursor"].as_str() else { return page(&script, Vec::new(), end, false, false) };
        if script.lie == Some(Lie::Endless) {
            let at = cursor.trim_start_matches("more-").parse::<usize>().unwrap_or_default() + 1;
            let known = script.slice(0..1);
            return json!({"result": {"resultType": "complete", "events": known, "cursor": format!("more-{at}"),
                "truncated": false, "hasMore": true, "nextPollMs": 0}});
        }
        let Some(mut at) = cursor.parse::<usize>().ok().filter(|_| !script.forget) else {
            return json!({"error": {"code": -32602, "message": "unknown cursor"}});
        };
        let truncated = std::mem::take(&mut script.truncate) || at < script.history_from;
        at = at.max(script.history_from);
        if script.repeat {
            at = at.saturating_sub(1);
        }
        let most = params["maxEvents"].as_u64().filter(|_| !script.pages_are_whole);
        let until = most.map_or(end, |most| end.min(at.saturating_add(most as usize)));
        let events = script.slice(at.min(until)..until);
        page(&script, events, until, until < end, truncated)
    }

    fn stream(&self, stream: &mut TcpStream, id: &Value, params: &Value) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let frame = |kind: &str, mut body: Value| {
            body["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id});
            let frame = json!({"jsonrpc": "2.0", "method": format!("notifications/events/{kind}"), "params": body});
            format!("data: {frame}\n\n")
        };
        let given = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok());
        let mut at: usize = given.unwrap_or_else(|| self.script().len());
        let truncated = at < self.script().history_from;
        at = at.max(self.script().history_from);
        if self.script().repeat {
            at = at.saturating_sub(1);
        }
        let active = frame("active", json!({"cursor": at.to_string(), "truncated": truncated}));
        if stream.write_all(format!("{head}{active}").as_bytes()).is_err() {
            return;
        }
        let mut sent = 0;
        loop {
            let (events, most, heartbeat) = {
                let script = self.script();
                (script.slice(at..at + 100), script.stream_ends_after, script.heartbeat)
            };
            let mut text = String::new();
            let idle = events.is_empty();
            for mut event in events {
                at += 1;
                sent += 1;
                event["cursor"] = at.to_string().into();
                text.push_str(&frame("event", event));
                if most == Some(sent) {
                    break;
                }
            }
            // Nothing is sent that could not be read: a reader that has gone ends the stream.
            if idle && heartbeat.is_some() {
                text = frame("heartbeat", json!({"cursor": at.to_string()}));
            } else if idle {
                text = ": still here\n\n".to_owned();
            }
            let text = self.as_written(text);
            if stream.write_all(text.as_bytes()).is_err() || most.is_some_and(|most| sent >= most) {
                return;
            }
            if idle {
                let wait = heartbeat.unwrap_or(Duration::from_millis(20));
                let waits = |script: &mut Script| script.len() <= at;
                drop(self.changed.wait_timeout_while(self.script(), wait, waits));
            }
        }
    }

    fn subscribe(&self, params: &Value) -> Value {
        let url = params["delivery"]["url"].as_str().unwrap_or_default().to_owned();
        let secret = params["delivery"]["secret"].as_str().unwrap_or_default().to_owned();
        let body = json!({"type": "verification", "challenge": "a-challenge"}).to_string();
        let (status, text) = post(&url, &secret, "msg_verification_1", now(), &body);
        if status != 200 || !text.contains("a-challenge") {
            return json!({"error": {"code": -32015, "message": "callback", "data": {"reason": "challenge_failed"}}});
        }
        let mut script = self.script();
        script.challenged += 1;
        script.hooks.retain(|(known, _)| *known != url);
        script.hooks.push((url, secret));
        let cursor = params["cursor"].as_str().map_or_else(|| script.len().to_string(), str::to_owned);
        json!({"result": {"resultType": "complete", "id": "sub_1", "refreshBefore": null, "cursor": cursor, "truncated": false}})
    }
}

fn page(script: &Script, events: Vec<Value>, end: usize, more: bool, truncated: bool) -> Value {
    let cursor = match script.lie {
        Some(Lie::Backwards) => json!("0"),
        Some(Lie::Number) => json!(end),
        _ => json!(end.to_string()),
    };
    json!({"result": {"resultType": "complete", "events": events, "cursor": cursor, "truncated": truncated,
        "hasMore": more, "nextPollMs": script.next_poll_ms.unwrap_or(100)}})
}

/// The body of the next request of a connection.
fn request(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

/// The time as a sender of webhooks writes it.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Signs and posts a body as a server does; the answer's status and text.
pub fn post(url: &str, secret: &str, id: &str, at: u64, body: &str) -> (u16, String) {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).expect("a secret");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length");
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(Duration::from_secs(10)))
        .build()
        .into();
    let request = agent
        .post(url)
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", at.to_string())
        .header("webhook-signature", signature);
    match request.send(body) {
        Ok(mut answer) => (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap_or_default()),
        Err(error) => (0, error.to_string()),
    }
}
