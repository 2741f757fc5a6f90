//! Chromium, for pictures: opened without a window, and driven by the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::{needs, temp_dir};

/// Longest time for an answer.
const LIMIT: Duration = Duration::from_secs(120);

/// Width and height in pixels of the windows that pictures are made for.
pub const WINDOWS: [(u32, u32); 2] = [(1280, 720), (1920, 1080)];

/// A browser with one page, killed when dropped.
pub struct Browser {
    child: Child,
    commands: File,
    answers: Receiver<Value>,
    calls: u64,
    session: Option<String>,
    files: tempfile::TempDir,
}

impl Browser {
    /// Starts it; `None` if there is none, which is reported.
    #[track_caller]
    pub fn start() -> Option<Browser> {
        if !needs(&["chromium", "bash", "mkfifo"]) {
            return None;
        }
        let files = temp_dir();
        let [commands, answers] = ["commands", "answers"].map(|name| {
            let path = files.path().join(name);
            assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            path
        });
        let options = "--headless=new --no-sandbox --no-first-run --disable-gpu --hide-scrollbars \
                       --remote-debugging-pipe";
        let script = format!("exec chromium {options} --user-data-dir=\"$3\" 3<\"$1\" 4>\"$2\"");
        let mut command = Command::new("bash");
        command.args(["-c", &script, "bash"]).args([&commands, &answers]);
        command.arg(files.path().join("home")).stdout(Stdio::null());
        let errors = File::create(files.path().join("errors")).unwrap();
        let child = command.stderr(errors).process_group(0).spawn().unwrap();
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            // Ends with the browser, which is the only one to write.
            let mut reader = BufReader::new(File::open(answers).unwrap());
            let mut bytes = Vec::new();
            while reader.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).expect("a message is JSON");
                if sender.send(message).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let mut browser = Browser {
            child,
            // A FIFO that is open for both does not wait for the other end.
            commands: OpenOptions::new().read(true).write(true).open(&commands).unwrap(),
            answers: receiver,
            calls: 0,
            session: None,
            files,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", json!({}));
        Some(browser)
    }

    /// Calls a method of the protocol.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.answers.recv_timeout(LIMIT).unwrap_or_else(|e| {
                let errors = std::fs::read_to_string(self.files.path().join("errors"));
                panic!("{method}: {e}: {}", errors.unwrap_or_default());
            });
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Opens a file in a window of this size, in light or dark colours.
    #[track_caller]
    pub fn open(&mut self, file: &Path, window: (u32, u32), scheme: &str) {
        self.resize(window);
        let feature = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": feature}));
        self.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        // The script of the page has run when two frames have been drawn after loading.
        self.evaluate(
            "new Promise(done => {
                const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
                if (document.readyState == 'complete') setTimeout(drawn, 0);
                else addEventListener('load', () => setTimeout(drawn, 0));
            })",
        );
    }

    /// Gives the window another size.
    #[track_caller]
    pub fn resize(&mut self, (width, height): (u32, u32)) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters =
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Presses a key: a character, or a name such as `Enter`.
    #[track_caller]
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let text = match key {
            "Enter" => "\r",
            _ if key.chars().count() == 1 => key,
            _ => "",
        };
        let kind = if text.is_empty() { "rawKeyDown" } else { "keyDown" };
        let event = json!({"type": kind, "key": key, "text": text, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", event);
        let event = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Types a text.
    #[track_caller]
    pub fn write(&mut self, text: &str) {
        text.chars().for_each(|c| self.press(&c.to_string()));
    }

    /// Clicks at a place of the window.
    #[track_caller]
    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Takes a screenshot of the window. Returns the number of its pixels of each colour (`r,g,b`),
    /// the most frequent first.
    #[track_caller]
    pub fn screenshot(&mut self) -> Vec<(String, u64)> {
        let png = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let counted = self.evaluate(&format!(
            "(async () => {{
                const bytes = Uint8Array.from(atob('{}'), c => c.charCodeAt(0));
                const image = await createImageBitmap(new Blob([bytes], {{type: 'image/png'}}));
                const canvas = new OffscreenCanvas(image.width, image.height);
                const context = canvas.getContext('2d');
                context.drawImage(image, 0, 0);
                const data = context.getImageData(0, 0, image.width, image.height).data;
                const counts = new Map();
                for (let i = 0; i < data.length; i += 4) {{
                    const color = data[i] + ',' + data[i + 1] + ',' + data[i + 2];
                    counts.set(color, (counts.get(color) || 0) + 1);
                }}
                return [...counts].sort((a, b) => b[1] - a[1]);
            }})()",
            png["data"].as_str().unwrap()
        ));
        serde_json::from_value(counted).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers, too.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
