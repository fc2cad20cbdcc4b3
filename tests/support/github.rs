//! GitHub's API on this machine: pages by path, with versions, and whatever trouble a test wants.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::payloads::{self, SHA};
use super::server::Server;
use super::wait::wait_until;

/// One request that was answered.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Path and query.
    pub path: String,
    /// The `Authorization` header.
    pub authorization: String,
    /// What it was answered with.
    pub status: u16,
}

#[derive(Default)]
struct World {
    pages: BTreeMap<String, Value>,
    refusals: BTreeMap<String, (u16, Vec<(String, String)>)>,
    asked: Vec<Asked>,
}

/// A GitHub. Paths that were not given a page are answered 404.
pub struct GitHub {
    /// Where it is.
    pub url: String,
    world: Arc<Mutex<World>>,
}

impl GitHub {
    /// One with a repository `octo-org/demo` in which nothing has happened.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let world: Arc<Mutex<World>> = Arc::default();
        let shared = Arc::clone(&world);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let world = Arc::clone(&shared);
                // A client that goes away ends its connection's thread.
                std::thread::spawn(move || serve(stream, &world).unwrap_or_default());
            }
        });
        let github = Self { url, world };
        github.page("/repos/octo-org/demo", payloads::repository());
        for empty in ["issues/comments", "pulls/comments", "pulls"] {
            github.page(&format!("/repos/octo-org/demo/{empty}"), Value::Array(Vec::new()));
        }
        github.runs(&[]);
        github.branch("feature", SHA);
        github.suites(SHA, &[]);
        github.statuses(SHA, &[]);
        github
    }

    /// A machine that polls this GitHub every second. Its server does not run yet.
    pub fn machine(&self, more: &str) -> Server {
        let config = format!(
            "[github]\napi_url = \"{}\"\n[github_poll]\nenabled = true\ninterval = \"1s\"\n{more}\n[routing]\ndebounce = \"30ms\"\n",
            self.url
        );
        let mut server = Server::new(&config);
        server.set_env("GH_TOKEN", "gho_hidden");
        server
    }

    /// What stands at a path, whatever the query.
    pub fn page(&self, path: &str, body: Value) {
        self.world().pages.insert(path.into(), body);
    }

    /// The workflow runs, newest first.
    pub fn runs(&self, runs: &[Value]) {
        self.page("/repos/octo-org/demo/actions/runs", json!({"total_count": runs.len(), "workflow_runs": runs}));
    }

    /// Pull request 20 of the branch `feature`, with no review.
    pub fn pull(&self, body: &str) -> Value {
        let mut pull = payloads::pull(20, "feature");
        pull["body"] = body.into();
        pull["created_at"] = "2026-11-30T09:00:00Z".into();
        self.page("/repos/octo-org/demo/issues/20", json!({"number": 20, "pull_request": {}}));
        self.page("/repos/octo-org/demo/pulls/20", pull.clone());
        self.page("/repos/octo-org/demo/pulls/20/reviews", json!([]));
        pull
    }

    /// Where a branch is.
    pub fn branch(&self, name: &str, sha: &str) {
        let found = json!({"name": name, "commit": {"sha": sha}, "protected": false});
        self.page(&format!("/repos/octo-org/demo/branches/{name}"), found);
    }

    /// The check suites of a commit.
    pub fn suites(&self, sha: &str, suites: &[Value]) {
        let found = json!({"total_count": suites.len(), "check_suites": suites});
        self.page(&format!("/repos/octo-org/demo/commits/{sha}/check-suites"), found);
    }

    /// The statuses of a commit, newest first.
    pub fn statuses(&self, sha: &str, statuses: &[Value]) {
        self.page(&format!("/repos/octo-org/demo/commits/{sha}/statuses"), statuses.into());
    }

    /// Answers a path with a status and headers until [`allow`](Self::allow).
    pub fn refuse(&self, path: &str, status: u16, headers: &[(&str, &str)]) {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        self.world().refusals.insert(path.into(), (status, headers));
    }

    /// Ends [`refuse`](Self::refuse).
    pub fn allow(&self, path: &str) {
        self.world().refusals.remove(path);
    }

    /// Everything that was asked for whose path holds `part`.
    pub fn asked(&self, part: &str) -> Vec<Asked> {
        self.world().asked.iter().filter(|asked| asked.path.contains(part)).cloned().collect()
    }

    /// Waits for `count` more requests whose path holds `part`.
    #[track_caller]
    pub fn wait(&self, part: &str, count: usize) {
        let before = self.asked(part).len();
        wait_until(&format!("{count} requests for {part}"), || self.asked(part).len() >= before + count);
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("the world")
    }
}

fn serve(stream: TcpStream, world: &Mutex<World>) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        let path = head.first().and_then(|line| line.split(' ').nth(1)).unwrap_or("/").to_owned();
        let header = |name: &str| {
            let named = |line: &String| {
                line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.to_owned())
            };
            head.iter().find_map(named).unwrap_or_default()
        };
        let mut world = world.lock().expect("the world");
        let bare = path.split('?').next().unwrap_or_default();
        let page = world.pages.get(bare).cloned();
        let later_page = path.contains("&page=") && !path.ends_with("&page=1");
        let (status, headers, body) = match (world.refusals.get(bare), page) {
            (Some((status, headers)), _) => (*status, headers.clone(), "{\"message\":\"no\"}".to_owned()),
            (None, Some(page)) => {
                let page = if later_page && page.is_array() { Value::Array(Vec::new()) } else { page };
                let body = page.to_string();
                let mut hasher = DefaultHasher::new();
                body.hash(&mut hasher);
                let etag = format!("\"{:x}\"", hasher.finish());
                let same = header("if-none-match") == etag;
                let headers = vec![("ETag".into(), etag)];
                if same { (304, headers, String::new()) } else { (200, headers, body) }
            }
            (None, None) => (404, Vec::new(), "{\"message\":\"Not Found\"}".to_owned()),
        };
        world.asked.push(Asked { path, authorization: header("authorization"), status });
        drop(world);
        let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(
            out,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{more}\r\n{body}",
            body.len()
        )?;
        out.flush()?;
    }
}
