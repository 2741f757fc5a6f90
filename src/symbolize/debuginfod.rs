//! Debug files from debuginfod servers, by build id.
//!
//! The cache is the one of elfutils' client (see `debuginfod_find_debuginfo(3)`): what gdb has
//! fetched is not fetched again, and the other way round.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig};

/// How long a server may take to be reached.
const CONNECT: Duration = Duration::from_secs(10);

/// How long it may be silent, unless `DEBUGINFOD_TIMEOUT` says otherwise. Elfutils' client waits
/// for 90 seconds; here a finished recording waits.
const SILENCE: Duration = Duration::from_secs(30);

/// How soon it is noticed that nobody waits any more.
const NOTICE: Duration = Duration::from_millis(50);

/// How long a server's word counts that it does not know a build id (elfutils' default).
const MISS: Duration = Duration::from_secs(600);

/// Larger files are refused, unless `DEBUGINFOD_MAXSIZE` says otherwise.
const MAX_SIZE: u64 = 4 << 30;

/// How far a download is.
#[derive(Clone, Copy, Debug)]
pub struct Download<'a> {
    /// Where it comes from.
    pub url: &'a str,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes in all, if the server says so.
    pub total: Option<u64>,
    /// It is over.
    pub done: bool,
}

/// A client of some servers.
pub struct Debuginfod {
    client: Arc<Client>,
    /// Each with what is wrong with it, once that is known: it is not asked again.
    servers: Mutex<Vec<(String, Option<String>)>>,
    refused: Mutex<Vec<String>>,
    cache: PathBuf,
    /// Nobody waits for it any more.
    abandoned: AtomicBool,
}

struct Client {
    agent: Agent,
    max_size: u64,
    progress: Box<dyn Fn(Download<'_>) + Send + Sync>,
}

impl fmt::Debug for Debuginfod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debuginfod").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// What elfutils' client reads from the environment.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `DEBUGINFOD_URLS`: servers, separated by white space.
    pub urls: Vec<String>,
    /// Where files are kept.
    pub cache: PathBuf,
    /// `DEBUGINFOD_TIMEOUT`.
    pub timeout: Option<Duration>,
    /// `DEBUGINFOD_MAXSIZE`, in bytes.
    pub max_size: Option<u64>,
}

impl Environment {
    /// This process's.
    pub fn read() -> Environment {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let number = |name: &str| var(name)?.parse::<u64>().ok().filter(|&n| n > 0);
        let home = || PathBuf::from(var("HOME").unwrap_or_else(|| "/".to_owned())).join(".cache");
        let folder = || var("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
        Environment {
            urls: urls(&var("DEBUGINFOD_URLS").unwrap_or_default()),
            cache: var("DEBUGINFOD_CACHE_PATH")
                .map_or_else(|| folder().join("debuginfod_client"), PathBuf::from),
            timeout: number("DEBUGINFOD_TIMEOUT").map(Duration::from_secs),
            max_size: number("DEBUGINFOD_MAXSIZE"),
        }
    }
}

/// The servers in a list separated by white space.
pub fn urls(text: &str) -> Vec<String> {
    let http = |u: &&str| u.starts_with("http://") || u.starts_with("https://");
    text.split_whitespace().filter(http).map(str::to_owned).collect()
}

impl Debuginfod {
    /// A client of the servers that the environment names. `progress` is told a few times a
    /// second how far a download is.
    pub fn new(
        environment: &Environment,
        progress: impl Fn(Download<'_>) + Send + Sync + 'static,
    ) -> Debuginfod {
        let silence = environment.timeout.unwrap_or(SILENCE);
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .user_agent(concat!("prof/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT.min(silence)))
            .timeout_recv_response(Some(silence))
            .timeout_per_read(Some(silence))
            .tls_config(tls);
        let server = |url: &String| (url.trim_end_matches('/').to_owned(), None);
        let client = Client {
            agent: config.build().new_agent(),
            max_size: environment.max_size.unwrap_or(MAX_SIZE),
            progress: Box::new(progress),
        };
        Debuginfod {
            client: Arc::new(client),
            servers: Mutex::new(environment.urls.iter().map(server).collect()),
            refused: Mutex::default(),
            cache: environment.cache.clone(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Waits for no server any more, now and later.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// What went wrong, one sentence each.
    pub fn troubles(&self) -> Vec<String> {
        let servers = self.servers.lock().unwrap_or_else(|e| e.into_inner());
        let trouble =
            |(url, why): &(String, Option<String>)| Some(format!("{url}: {}", why.as_ref()?));
        let refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        servers.iter().filter_map(trouble).chain(refused.iter().cloned()).collect()
    }

    /// A file that was given is not what was asked for: it is forgotten.
    pub fn refuse(&self, build_id: &str, file: &Path) {
        let _ = fs::remove_file(file);
        let mut refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        refused.push(format!("what debuginfod has as build id {build_id} is another file"));
    }

    /// The file with the debug information of a build, from the cache or a server. Nobody has
    /// checked yet that it is.
    pub fn debug_file(&self, build_id: &str) -> Option<PathBuf> {
        // It becomes part of a path and of a URL.
        let hex = build_id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !hex || !(8..=128).contains(&build_id.len()) {
            return None;
        }
        let folder = self.cache.join(build_id);
        let file = folder.join("debuginfo");
        match fs::metadata(&file) {
            Ok(known) if known.len() > 0 => return Some(file),
            Ok(known) => {
                let age = known.modified().ok().and_then(|t| t.elapsed().ok());
                if age.is_some_and(|age| age < MISS) {
                    return None;
                }
            }
            Err(_) => {}
        }
        let known = self.servers.lock().unwrap_or_else(|e| e.into_inner()).len();
        let mut all_answered = known > 0;
        for server in 0..known {
            match self.ask(server, build_id, &folder, &file) {
                Answer::Here => return Some(file),
                Answer::Unknown => {}
                Answer::Trouble => all_answered = false,
            }
        }
        if all_answered {
            self.note_miss(&folder, &file);
        }
        None
    }

    fn ask(&self, server: usize, build_id: &str, folder: &Path, file: &Path) -> Answer {
        let lock = || self.servers.lock().unwrap_or_else(|e| e.into_inner());
        let (base, None) = lock()[server].clone() else { return Answer::Trouble };
        let url = format!("{base}/buildid/{build_id}/debuginfo");
        match self.fetch(url, folder.to_owned(), file.to_owned()) {
            Ok(true) => Answer::Here,
            Ok(false) => Answer::Unknown,
            Err(why) => {
                lock()[server].1 = Some(why);
                Answer::Trouble
            }
        }
    }

    /// Returns false when the server does not have the file. A request cannot be ended early, so
    /// it has a thread of its own.
    fn fetch(&self, url: String, folder: PathBuf, file: PathBuf) -> Result<bool, String> {
        let client = self.client.clone();
        let (sender, result) = mpsc::channel();
        let work = move || drop(sender.send(client.fetch(&url, &folder, &file)));
        let thread = std::thread::Builder::new().name("debuginfod".into()).spawn(work);
        thread.map_err(|e| e.to_string())?;
        loop {
            if self.abandoned.load(Ordering::Relaxed) {
                return Err("not waited for any longer: interrupted".to_owned());
            }
            match result.recv_timeout(NOTICE) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("the download ended in a panic".to_owned());
                }
            }
        }
    }

    /// An empty file, as elfutils' client leaves it; that it cannot be written does no harm.
    fn note_miss(&self, folder: &Path, file: &Path) {
        let _ = fs::create_dir_all(folder).and_then(|()| fs::write(file, b""));
    }
}

impl Client {
    fn fetch(&self, url: &str, folder: &Path, file: &Path) -> Result<bool, String> {
        (self.progress)(Download { url, bytes: 0, total: None, done: false });
        let answer = self.transfer(url, folder, file);
        (self.progress)(Download { url, bytes: 0, total: None, done: true });
        answer
    }

    fn transfer(&self, url: &str, folder: &Path, file: &Path) -> Result<bool, String> {
        let response = match self.agent.get(url).call() {
            Ok(response) => response,
            Err(ureq::Error::StatusCode(404)) => return Ok(false),
            Err(e) => return Err(e.to_string()),
        };
        let body = response.into_body();
        let total = body.content_length();
        let too_large = || format!("a file of more than {} MiB", self.max_size >> 20);
        if total.is_some_and(|n| n > self.max_size) {
            return Err(too_large());
        }
        let here = |e: io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(folder).map_err(here)?;
        let mut half = tempfile::NamedTempFile::new_in(folder).map_err(here)?;
        let mut from = body.into_with_config().limit(self.max_size + 1).reader();
        let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
        let mut copy = || loop {
            let n = from.read(&mut buffer).map_err(|e| e.to_string())?;
            if n == 0 {
                return Ok(());
            }
            bytes += n as u64;
            if bytes > self.max_size {
                return Err(too_large());
            }
            half.write_all(&buffer[..n]).map_err(here)?;
            (self.progress)(Download { url, bytes, total, done: false });
        };
        copy()?;
        if total.is_some_and(|n| n != bytes) || bytes == 0 {
            return Err(format!("the download ended after {bytes} bytes"));
        }
        half.persist(file).map_err(|e| here(e.error))?;
        Ok(true)
    }
}

enum Answer {
    Here,
    Unknown,
    Trouble,
}
