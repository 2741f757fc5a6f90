//! Debug files and source files from debuginfod servers, by build ID.
//!
//! The cache is that of elfutils' client (see `debuginfod_find_debuginfo(3)`): files that gdb has
//! fetched are not fetched again, and the other way round.

mod names;

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::{Response, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Body, Error};

use super::private::PrivateDir;
use names::{cached_name, escaped, normal, redirected};

/// Timeout of connecting to a server.
const CONNECT: Duration = Duration::from_secs(10);

/// Time in which a download has to bring 100 KB, and again as often, unless `DEBUGINFOD_TIMEOUT` sets
/// another; elfutils' client waits for 90 s. For a debug file, a finished recording waits; for a
/// source file, you do.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_FOR_SOURCE: Duration = Duration::from_secs(10);
const LEAST_BYTES: u64 = 100_000;

/// Delay until an interruption is noticed.
const NOTICE: Duration = Duration::from_millis(50);

/// Time for which a negative response is cached (elfutils' default).
const MISS: Duration = Duration::from_secs(600);

/// Time that a download may always take, unless `DEBUGINFOD_MAXTIME` sets another; above it, a
/// download continues while it transfers at least `SLOW` bytes/s.
const TIME: Duration = Duration::from_secs(90);
const SLOW: u64 = 128 << 10;

/// Limits of all downloads together: time and bytes.
const TIME_OF_ALL: Duration = Duration::from_secs(600);
const BYTES_OF_ALL: u64 = 8 << 30;

/// Most redirections of a request.
const MAX_REDIRECTS: usize = 3;

/// Name of the debug file in the cache.
const NAME: &str = "debuginfo";

/// Longest name of a file.
const MAX_NAME: usize = 255;

/// Largest file that is accepted, in bytes, unless `DEBUGINFOD_MAXSIZE` sets another.
const MAX_SIZE: u64 = 4 << 30;

/// Progress of a download.
#[derive(Clone, Copy, Debug)]
pub struct Download<'a> {
    /// Its URL.
    pub url: &'a str,
    /// Bytes so far.
    pub bytes: u64,
    /// Total size, if the server reports it.
    pub total: Option<u64>,
    /// It has ended.
    pub done: bool,
}

/// A client of some servers.
pub struct Debuginfod {
    client: Arc<Client>,
    /// Servers, each with its error, if it had one: it is not requested again.
    servers: Mutex<Vec<(String, Option<String>)>>,
    refused: Mutex<Vec<String>>,
    cache: PathBuf,
    /// The user has interrupted the downloads.
    abandoned: AtomicBool,
    /// Threads that wait for a server.
    waiting: AtomicUsize,
    /// Start of the first download, and bytes of all.
    began: OnceLock<Instant>,
}

struct Client {
    agent: Agent,
    max_size: u64,
    timeout: Option<Duration>,
    max_time: Option<Duration>,
    /// Bytes that may still be received.
    left: AtomicU64,
    progress: Box<dyn Fn(Download<'_>) + Send + Sync>,
}

impl fmt::Debug for Debuginfod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debuginfod").field("cache", &self.cache).finish_non_exhaustive()
    }
}

/// Variables of elfutils' client.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `DEBUGINFOD_URLS`: servers, separated by white space.
    pub urls: Vec<String>,
    /// Directory of the cache.
    pub cache: PathBuf,
    /// `DEBUGINFOD_TIMEOUT`.
    pub timeout: Option<Duration>,
    /// `DEBUGINFOD_MAXSIZE`, in bytes.
    pub max_size: Option<u64>,
    /// `DEBUGINFOD_MAXTIME`.
    pub max_time: Option<Duration>,
}

impl Environment {
    /// The environment of this process.
    pub fn read() -> Environment {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let number = |name: &str| var(name)?.parse::<u64>().ok().filter(|&n| n > 0);
        let home = || PathBuf::from(var("HOME").unwrap_or_else(|| "/".to_owned())).join(".cache");
        let directory = || var("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
        Environment {
            urls: urls(&var("DEBUGINFOD_URLS").unwrap_or_default()),
            cache: var("DEBUGINFOD_CACHE_PATH")
                .map_or_else(|| directory().join("debuginfod_client"), PathBuf::from),
            timeout: number("DEBUGINFOD_TIMEOUT").map(Duration::from_secs),
            max_size: number("DEBUGINFOD_MAXSIZE"),
            max_time: number("DEBUGINFOD_MAXTIME").map(Duration::from_secs),
        }
    }
}

/// Servers in a list separated by white space.
pub fn urls(text: &str) -> Vec<String> {
    let http = |u: &&str| u.starts_with("http://") || u.starts_with("https://");
    text.split_whitespace().filter(http).map(str::to_owned).collect()
}

impl Debuginfod {
    /// A client of the servers in the environment. `progress` is called a few times a second with
    /// the progress of a download.
    pub fn new(
        environment: &Environment,
        progress: impl Fn(Download<'_>) + Send + Sync + 'static,
    ) -> Debuginfod {
        let silence = environment.timeout.unwrap_or(PATIENCE);
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .user_agent(concat!("prof/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT.min(silence)))
            .timeout_recv_response(Some(silence))
            .timeout_per_read(Some(silence))
            // Redirections are followed by this module.
            .max_redirects(0)
            .tls_config(tls);
        let server = |url: &String| (url.trim_end_matches('/').to_owned(), None);
        let client = Client {
            agent: config.build().new_agent(),
            max_size: environment.max_size.unwrap_or(MAX_SIZE),
            timeout: environment.timeout,
            max_time: environment.max_time,
            left: AtomicU64::new(BYTES_OF_ALL),
            progress: Box::new(progress),
        };
        Debuginfod {
            client: Arc::new(client),
            servers: Mutex::new(environment.urls.iter().map(server).collect()),
            refused: Mutex::default(),
            cache: environment.cache.clone(),
            abandoned: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            began: OnceLock::new(),
        }
    }

    /// Stops waiting for servers, now and later. Returns true if a thread was waiting.
    pub fn abandon(&self) -> bool {
        let before = self.abandoned.swap(true, Ordering::Relaxed);
        !before && self.waiting.load(Ordering::Relaxed) > 0
    }

    /// True if a thread waits for a server.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Errors so far, one sentence each.
    pub fn errors(&self) -> Vec<String> {
        let servers = self.servers.lock().unwrap_or_else(|e| e.into_inner());
        let error =
            |(url, why): &(String, Option<String>)| Some(format!("{url}: {}", why.as_ref()?));
        let refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        servers.iter().filter_map(error).chain(refused.iter().cloned()).collect()
    }

    fn add_error(&self, what: String) {
        let mut refused = self.refused.lock().unwrap_or_else(|e| e.into_inner());
        if !refused.contains(&what) {
            refused.push(what);
        }
    }

    /// Removes a file that turned out to belong to another build.
    pub fn refuse(&self, build_id: &str) {
        let directory =
            PrivateDir::open(&self.cache).and_then(|all| all.existing(Path::new(build_id)));
        let _ = directory.and_then(|directory| directory.remove(Path::new(NAME)));
        self.add_error(format!(
            "debuginfod returned a file of another build for build ID {build_id}"
        ));
    }

    /// Debug file of a build, from the cache or a server, and its path. Its build is not verified
    /// yet.
    pub fn debug_file(&self, build_id: &str) -> Option<(PathBuf, File)> {
        let wanted = Wanted {
            build_id,
            path: "debuginfo",
            name: Path::new(NAME),
            max_size: self.client.max_size,
            patience: self.client.timeout.unwrap_or(PATIENCE),
        };
        self.file(&wanted)
    }

    /// Source file of a build, from the cache or a server, and its path in the cache. `path` is the
    /// absolute one in the debug information.
    pub fn source_file(&self, build_id: &str, path: &str, limit: u64) -> Option<(PathBuf, File)> {
        let path = normal(path)?;
        let name = cached_name(&path);
        if name.len() > MAX_NAME {
            return None;
        }
        let max_size = self.client.max_size.min(limit);
        let path = format!("source{}", escaped(&path));
        let patience = self.client.timeout.unwrap_or(PATIENCE_FOR_SOURCE);
        let name = Path::new(&name);
        let wanted = Wanted { build_id, path: &path, name, max_size, patience };
        let (path, mut file) = self.file(&wanted)?;
        // A file that was just written is at its end.
        file.rewind().ok()?;
        Some((path, file))
    }

    fn file(&self, wanted: &Wanted<'_>) -> Option<(PathBuf, File)> {
        let Wanted { build_id, name, .. } = *wanted;
        // It becomes part of a path and of a URL.
        let hex = build_id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !hex || !(8..=128).contains(&build_id.len()) {
            return None;
        }
        let path = self.cache.join(build_id).join(name);
        let cached = PrivateDir::open(&self.cache)
            .and_then(|all| all.existing(Path::new(build_id)))
            .and_then(|directory| directory.file(name));
        if let Ok((file, metadata)) = cached {
            if metadata.len() > 0 {
                return Some((path, file));
            }
            let age = metadata.modified().ok().and_then(|t| t.elapsed().ok());
            if age.is_some_and(|age| age < MISS) {
                return None;
            }
        }
        if self.began.get_or_init(Instant::now).elapsed() > TIME_OF_ALL {
            self.add_error(
                "debuginfod: the time limit of all downloads was reached (10 minutes)".into(),
            );
            return None;
        }
        let servers = self.servers.lock().unwrap_or_else(|e| e.into_inner()).len();
        let mut all_replied = servers > 0;
        for server in 0..servers {
            match self.request(server, wanted) {
                ServerResult::Here(file) => return Some((path, file)),
                ServerResult::Unknown => {}
                ServerResult::Failed => all_replied = false,
            }
        }
        if all_replied {
            // An empty file marks a negative response, as in elfutils' client.
            let left = self.directory(build_id).and_then(|f| f.leave_empty(name));
            self.check_cached(left);
        }
        None
    }

    /// Cache directory of a build.
    fn directory(&self, build_id: &str) -> io::Result<PrivateDir> {
        PrivateDir::make(&self.cache)?.sub(Path::new(build_id))
    }

    /// A failure to cache is harmless, but costs time at each recording.
    fn check_cached(&self, result: io::Result<()>) {
        if let Err(e) = result {
            let cache = self.cache.display();
            self.add_error(format!("debug files are not cached in {cache}: {e}"));
        }
    }

    fn request(&self, server: usize, wanted: &Wanted<'_>) -> ServerResult {
        let Wanted { build_id, path, name, .. } = *wanted;
        let lock = || self.servers.lock().unwrap_or_else(|e| e.into_inner());
        let (base, None) = lock()[server].clone() else { return ServerResult::Failed };
        let url = format!("{base}/buildid/{build_id}/{path}");
        let directory = self.directory(build_id);
        // The file has no name until it is complete, so no partial file remains.
        let into = match &directory {
            Ok(directory) => tempfile::tempfile_in(directory.entries()),
            Err(_) => tempfile::tempfile(),
        };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let fetched =
            into.map_err(|e| e.to_string()).and_then(|into| self.fetch(url, into, wanted));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        match fetched {
            Ok(Some(file)) => {
                self.check_cached(directory.and_then(|directory| directory.name(&file, name)));
                ServerResult::Here(file)
            }
            Ok(None) => ServerResult::Unknown,
            Err(why) => {
                lock()[server].1 = Some(why);
                ServerResult::Failed
            }
        }
    }

    /// Downloads the file into `into`; `None` if the server does not have it. A request cannot be
    /// cancelled, so it has its own thread, which ends by itself after this one has given up.
    fn fetch(&self, url: String, into: File, wanted: &Wanted<'_>) -> Result<Option<File>, String> {
        let client = self.client.clone();
        let transfer = Arc::new(Transfer { url, max_size: wanted.max_size, ..Transfer::default() });
        let (sender, result) = mpsc::channel();
        let in_thread = transfer.clone();
        let work = move || drop(sender.send(client.transfer(&in_thread, into)));
        self.client.show(&transfer, 0, None);
        let thread = std::thread::Builder::new().name("debuginfod".into()).spawn(work);
        let result = match thread {
            Ok(_) => self.wait(&result, &transfer, wanted.patience),
            Err(e) => Err(e.to_string()),
        };
        transfer.is_over.store(true, Ordering::Relaxed);
        let url = &transfer.url;
        (self.client.progress)(Download { url, bytes: 0, total: None, done: true });
        result
    }

    /// The result of a download, unless it is too slow. A server may send single bytes for ever, of
    /// a header or of the file: only what arrives in some time can be judged.
    fn wait(
        &self,
        result: &mpsc::Receiver<Result<Option<File>, String>>,
        transfer: &Transfer,
        patience: Duration,
    ) -> Result<Option<File>, String> {
        let began = Instant::now();
        let (mut judged, mut bytes_judged) = (began, 0);
        loop {
            if self.abandoned.load(Ordering::Relaxed) {
                return Err("interrupted".to_owned());
            }
            let bytes = transfer.bytes.load(Ordering::Relaxed);
            let seconds = began.elapsed().as_secs();
            let most = TIME + Duration::from_secs(bytes / SLOW);
            if began.elapsed() > self.client.max_time.unwrap_or(most) {
                return Err(format!("too slow: {bytes} bytes in {seconds} s"));
            }
            if judged.elapsed() > patience {
                if bytes == 0 {
                    return Err(format!("timeout: no file in {seconds} s"));
                }
                if bytes - bytes_judged < LEAST_BYTES {
                    return Err(format!("too slow: {bytes} bytes in {seconds} s"));
                }
                (judged, bytes_judged) = (Instant::now(), bytes);
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
}

impl Client {
    /// Reports the progress of a download that is not over.
    fn show(&self, transfer: &Transfer, bytes: u64, total: Option<u64>) {
        if !transfer.is_over.load(Ordering::Relaxed) {
            (self.progress)(Download { url: &transfer.url, bytes, total, done: false });
        }
    }

    /// Response of a server, after redirections.
    fn response(&self, url: &str) -> Result<Option<Response<Body>>, String> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let response = match self.agent.get(&url).call() {
                Ok(response) => response,
                Err(Error::StatusCode(404)) => return Ok(None),
                Err(e) => return Err(e.to_string()),
            };
            if !response.status().is_redirection() {
                return Ok(Some(response));
            }
            let location = response.headers().get(header::LOCATION);
            let location = location.and_then(|l| l.to_str().ok()).unwrap_or_default();
            url = redirected(&url, location)
                .ok_or_else(|| format!("its redirection to {location:?} is not followed"))?;
        }
        Err("too many redirections".to_owned())
    }

    fn transfer(&self, transfer: &Transfer, mut into: File) -> Result<Option<File>, String> {
        let max_size = transfer.max_size;
        let Some(response) = self.response(&transfer.url)? else { return Ok(None) };
        let body = response.into_body();
        let total = body.content_length();
        let max_size = max_size.min(self.left.load(Ordering::Relaxed));
        let too_large = || format!("a file of more than {} MiB", max_size >> 20);
        if total.is_some_and(|n| n > max_size) {
            return Err(too_large());
        }
        let mut from = body.into_with_config().limit(max_size + 1).reader();
        let mut buffer = vec![0; 1 << 16];
        let mut bytes = 0;
        let mut copy = || loop {
            let n = from.read(&mut buffer).map_err(|e| e.to_string())?;
            if n == 0 {
                return Ok(());
            }
            bytes += n as u64;
            if bytes > max_size {
                return Err(too_large());
            }
            if transfer.is_over.load(Ordering::Relaxed) {
                return Err("given up".to_owned());
            }
            into.write_all(&buffer[..n]).map_err(|e| e.to_string())?;
            transfer.bytes.store(bytes, Ordering::Relaxed);
            self.show(transfer, bytes, total);
        };
        copy()?;
        if total.is_some_and(|n| n != bytes) || bytes == 0 {
            return Err(format!("the download ended after {bytes} bytes"));
        }
        self.left.fetch_sub(bytes.min(max_size), Ordering::Relaxed);
        Ok(Some(into))
    }
}

/// A file of a build.
struct Wanted<'a> {
    build_id: &'a str,
    /// Its path below that of the build on a server.
    path: &'a str,
    /// Its name in the cache.
    name: &'a Path,
    max_size: u64,
    /// Time in which it has to bring [`LEAST_BYTES`].
    patience: Duration,
}

/// A download.
#[derive(Default)]
struct Transfer {
    url: String,
    max_size: u64,
    /// Bytes of the file so far.
    bytes: AtomicU64,
    /// It has ended, or is no longer waited for.
    is_over: AtomicBool,
}

enum ServerResult {
    Here(File),
    Unknown,
    Failed,
}
