//! debuginfod: the real server, and faulty ones.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::debuginfod::{Debuginfod, Environment};
use super::*;

/// A stripped program whose debug information is in `away/`, and its build ID.
struct Stripped {
    lab: Lab,
    binary: PathBuf,
    mapping: (u64, u64, String),
    address: u64,
}

impl Stripped {
    fn new() -> Stripped {
        let lab = Lab::new();
        let binary = lab.compile("prog", C, &["-g"]);
        let mapping = mapping_of(&binary, 0);
        let address = marks(&binary)("mark_inner");
        fs::create_dir(lab.path("away")).unwrap();
        lab.run("objcopy", &["--only-keep-debug", "prog", "away/prog.debug"]);
        lab.run("strip", &["prog"]);
        Stripped { lab, binary, mapping, address }
    }

    fn client(&self, urls: &[String]) -> Debuginfod {
        let environment = Environment {
            urls: urls.to_vec(),
            cache: self.lab.path("cache"),
            timeout: Some(Duration::from_secs(1)),
            max_size: Some(1 << 20),
            max_time: Some(Duration::from_secs(3)),
        };
        Debuginfod::new(&environment, |_| {})
    }

    /// Names at the address, and the errors.
    fn resolve(&self, urls: &[String]) -> (Vec<String>, Vec<String>) {
        let debuginfod = Some(Arc::new(self.client(urls)));
        let options = SymbolOptions { debuginfod, ..self.lab.options() };
        let mut p = profile(&self.binary, self.mapping.clone(), 0, &[self.address]);
        let outcome = symbolize(&mut p, &options, &quiet);
        (names(&p, 0), outcome.errors)
    }

    fn cached(&self) -> PathBuf {
        self.lab.path("cache").join(&self.mapping.2).join("debuginfo")
    }

    fn debug_file(&self) -> Vec<u8> {
        fs::read(self.lab.path("away/prog.debug")).unwrap()
    }
}

/// A server with a fixed response to every request; its URL, and a counter of requests.
fn server(result: impl Fn(TcpStream) + Send + Sync + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while request.read_line(&mut line).is_ok_and(|n| n > 2) {
                line.clear();
            }
            result(stream);
        }
    });
    (url, requests)
}

fn reply(mut stream: TcpStream, status: &str, length: usize, body: &[u8]) {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // The client may hang up at any time.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

const ALL: [&str; 3] = ["inner", "middle", "outer"];

#[test]
fn a_debug_file_is_fetched_once() {
    let case = Stripped::new();
    let file = case.debug_file();
    let (url, requests) = server(move |s| reply(s, "200 OK", file.len(), &file));
    for _ in 0..2 {
        assert_eq!(
            case.resolve(std::slice::from_ref(&url)),
            (ALL.map(str::to_owned).to_vec(), vec![])
        );
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    assert_eq!(fs::read(case.cached()).unwrap(), case.debug_file());
}

#[test]
fn a_missing_file_is_not_requested_again_soon() {
    let case = Stripped::new();
    let (url, requests) = server(|s| reply(s, "404 Not Found", 0, b""));
    for _ in 0..3 {
        assert_eq!(case.resolve(std::slice::from_ref(&url)), (vec![], vec![]));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    // The second server may have it.
    fs::remove_file(case.cached()).unwrap();
    let file = case.debug_file();
    let (other, _) = server(move |s| reply(s, "200 OK", file.len(), &file));
    assert_eq!(case.resolve(&[url, other]).0, ALL);
}

#[test]
fn faulty_servers_cost_no_more_than_names() {
    let case = Stripped::new();
    let lab = &case.lab;
    let other = lab.compile("other", &C.replace("return 0", "return 1"), &["-g"]);
    let other = fs::read(other).unwrap();
    let file = case.debug_file();
    let half = file[..file.len() / 2].to_vec();
    type Server = (&'static str, Box<dyn Fn(TcpStream) + Send + Sync>);
    let cases: [Server; 11] = [
        ("timeout", Box::new(drip_header)),
        ("", Box::new(endless_header)),
        ("not followed", Box::new(|s| redirect(s, "file:///etc/shadow"))),
        ("timeout", Box::new(|s| std::thread::sleep(Duration::from_secs(9 + drop_later(s))))),
        ("another build", Box::new(move |s| reply(s, "200 OK", other.len(), &other))),
        ("another build", Box::new(|s| reply(s, "200 OK", 9, b"no binary"))),
        ("", Box::new(move |s| reply(s, "200 OK", file.len(), &half))),
        ("MiB", Box::new(|s| reply(s, "200 OK", 2 << 20, &[0; 100]))),
        ("too slow", Box::new(drip)),
        ("not followed", Box::new(|s| redirect(s, "http://localhost:9/x"))),
        ("500", Box::new(|s| reply(s, "500 Internal Server Error", 0, b""))),
    ];
    for (n, (word, result)) in cases.into_iter().enumerate() {
        let (url, _) = server(result);
        let since = Instant::now();
        let (names, errors) = case.resolve(&[url]);
        assert!(names.is_empty(), "{n}: {names:?}");
        assert_eq!(errors.len(), 1, "{n}: {errors:?}");
        assert!(errors[0].contains(word), "{n}: {errors:?}");
        assert!(since.elapsed() < Duration::from_secs(8), "{n}");
        assert!(!case.cached().exists(), "{n}");
    }
    // No server listens.
    let (_, errors) = case.resolve(&["http://127.0.0.1:9".to_owned()]);
    assert_eq!(errors.len(), 1, "{errors:?}");
}

/// Sends one byte at a time, without end.
fn drip(mut stream: TcpStream) {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
    let mut sent = stream.write_all(head.as_bytes());
    while sent.is_ok() {
        std::thread::sleep(Duration::from_millis(100));
        sent = stream.write_all(b"x");
    }
}

/// Sends one line of a header at a time, without end.
fn drip_header(mut stream: TcpStream) {
    let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n");
    while sent.is_ok() {
        std::thread::sleep(Duration::from_millis(100));
        sent = stream.write_all(b"X: y\r\n");
    }
}

/// Sends a header without end.
fn endless_header(mut stream: TcpStream) {
    let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\n");
    while sent.is_ok() {
        sent = stream.write_all(&[b'A'; 1 << 16]);
    }
}

/// A server that never ends is slower than the least rate, also for a source file.
#[test]
fn a_source_file_that_drips_is_given_up() {
    let case = Stripped::new();
    let (url, requests) = server(drip);
    let client = case.client(std::slice::from_ref(&url));
    for _ in 0..3 {
        assert!(client.source_file(&case.mapping.2, "/a.c", 1 << 20).is_none());
    }
    let errors = client.errors();
    assert!(
        errors.len() == 1 && errors[0].starts_with(&format!("{url}: too slow: ")),
        "{errors:?}"
    );
    assert_eq!(requests.load(Ordering::SeqCst), 1, "it is not requested again");
}

fn redirect(mut stream: TcpStream, to: &str) {
    let head = format!("HTTP/1.1 302 SymbolFiles\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
    let _ = stream.write_all(head.as_bytes());
}

#[test]
fn links_in_the_cache_are_not_followed() {
    let case = Stripped::new();
    let (url, _) = server(|s| reply(s, "404 Not Found", 0, b""));
    let directory = case.cached().parent().unwrap().to_owned();
    let away = case.lab.path("nologin");
    fs::create_dir_all(&directory).unwrap();
    std::os::unix::fs::symlink(&away, case.cached()).unwrap();
    assert_eq!(case.resolve(std::slice::from_ref(&url)), (vec![], vec![]));
    assert!(!away.exists(), "a file was made where a link leads to");
    // A directory that is a link; a FIFO.
    fs::remove_dir_all(&directory).unwrap();
    fs::create_dir(&away).unwrap();
    std::os::unix::fs::symlink(&away, &directory).unwrap();
    case.resolve(std::slice::from_ref(&url));
    assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    case.lab.run("mkfifo", &[case.cached().to_str().unwrap()]);
    assert_eq!(case.resolve(&[url]).0, Vec::<String>::new());
}

#[test]
fn a_cache_that_others_can_change_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let case = Stripped::new();
    let file = case.debug_file();
    let (url, _) = server(move |s| reply(s, "200 OK", file.len(), &file));
    let cache = case.lab.path("cache");
    fs::create_dir(&cache).unwrap();
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let (names, errors) = case.resolve(&[url]);
    assert_eq!(names, ALL, "the file is used, but not cached");
    assert!(errors[0].contains("not cached"), "{errors:?}");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
}

/// Keeps the connection open as long as the process lives.
fn drop_later(stream: TcpStream) -> u64 {
    std::mem::forget(stream);
    0
}

#[test]
fn a_source_file_is_fetched_once() {
    let case = Stripped::new();
    let (url, requests) = server(|s| reply(s, "200 OK", 5, b"text\n"));
    let id = &case.mapping.2;
    for _ in 0..2 {
        let client = case.client(std::slice::from_ref(&url));
        let (path, file) = client.source_file(id, "/src/x/../a.c", 100).unwrap();
        assert_eq!(std::io::read_to_string(file).unwrap(), "text\n");
        assert_eq!(path, case.lab.path("cache").join(id).join("source##src##a.c"));
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
    let client = case.client(&[url]);
    let long = format!("/{}", "a".repeat(300));
    for odd in ["a.c", "", "/", &long] {
        assert!(client.source_file(id, odd, 100).is_none(), "{odd}");
    }
    assert!(client.source_file("../..", "/a.c", 100).is_none());
    assert_eq!((client.errors(), requests.load(Ordering::SeqCst)), (vec![], 1));
    assert!(client.source_file(id, "/b.c", 4).is_none());
    assert!(client.errors()[0].contains("a file of more than"), "{:?}", client.errors());
}

#[test]
fn odd_build_ids_are_no_paths() {
    let case = Stripped::new();
    let client = case.client(&["http://127.0.0.1:9".to_owned()]);
    for id in ["", "../../etc/passwd", "abc", "ABCDEF0123", &"a".repeat(200)] {
        assert!(client.debug_file(id).is_none(), "{id}");
    }
    assert!(client.errors().is_empty());
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// elfutils' own server, from Debian's package.
#[test]
fn the_real_server_gives_names() {
    let case = Stripped::new();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("debuginfod");
    command.args(["-F", "-d", ":memory:", "-p", &port.to_string()]).arg(case.lab.path("away"));
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _server = match started {
        Ok(child) => Killed(child),
        Err(e) => return sys::testing::skip(&format!("debuginfod: {e}")),
    };
    // It scans the directory first.
    let since = Instant::now();
    let urls = [format!("http://127.0.0.1:{port}")];
    let mut result = case.resolve(&urls);
    while result.0.is_empty() && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(300));
        let _ = fs::remove_dir_all(case.lab.path("cache"));
        result = case.resolve(&urls);
    }
    assert_eq!(result, (ALL.map(str::to_owned).to_vec(), vec![]));
    let source = case.lab.path("prog.c").canonicalize().unwrap();
    let found = case.client(&urls).source_file(&case.mapping.2, &source.to_string_lossy(), 1 << 20);
    assert_eq!(std::io::read_to_string(found.unwrap().1).unwrap(), C);
}
