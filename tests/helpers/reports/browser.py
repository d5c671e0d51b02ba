"""A page in headless Chromium, driven over a pipe: no port, no package. Everything that it asks for is written down."""

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-startup-window"),
    *("--remote-debugging-pipe", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Page:
    """One tab.

    Attributes:
      asked: addresses of all requests but the page's own.
      complaints: what went to the console, and exceptions.
    """

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies, self._session = commands, replies, ""
        self._read, self._last, self._loaded = b"", 0, set[str]()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Result of a command of the DevTools protocol."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (reply := self._next()).get("id") != self._last:
            self._note(reply)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        return reply["result"]

    def open(self, place: Path | str, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file or an address at a width in CSS pixels, and wait until it stands."""
        self.resize(width, height, dark)
        going = self.call("Page.navigate", url=place if isinstance(place, str) else place.as_uri())
        while going["loaderId"] not in self._loaded:  # the page before may end to load meanwhile
            self._note(self._next())

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Another width, also one that no window of Chromium has; colours for day or night."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        wanted = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wanted])

    def evaluate(self, expression: str) -> Any:
        """Value of an expression in the page; of what it promises, if it does."""
        got = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError(f"{expression[:80]}: {json.dumps(got['exceptionDetails'])[:500]}")
        return got["result"].get("value")

    def violations(self, axe: Path) -> list[str]:
        """What axe-core finds that keeps people from using the page: rule, how serious, elements."""
        if not self.evaluate("typeof axe === 'object'"):
            self.evaluate(f"{axe.read_text(encoding='utf-8')}; undefined")
        found = self.evaluate("axe.run({resultTypes: ['violations']}).then(done => done.violations)")
        places = [", ".join(" ".join(map(str, each["target"])) for each in rule["nodes"]) for rule in found]
        return [f"{rule['id']} ({rule['impact']}): {place}" for rule, place in zip(found, places, strict=True)]

    def press(self, key: str) -> None:
        """A key of a real keyboard, as the browser gets it."""
        text = {"Enter": "\r", "Tab": ""}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Tab": 9}.get(key) or (ord(key.upper()) if len(key) == 1 and key.isalnum() else 0)
        about = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, **about)

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(shot))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            more = os.read(self._replies, 1 << 20)
            if not more:
                raise RuntimeError("Chromium ended")
            self._read += more
        message, self._read = self._read.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        method, about = event.get("method"), event.get("params", {})
        if method == "Page.lifecycleEvent" and about["name"] == "load":
            self._loaded.add(about["loaderId"])
        if method == "Network.requestWillBeSent" and about["type"] != "Document":
            self.asked.append(about["request"]["url"])
        elif method == "Log.entryAdded":
            self.complaints.append(about["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(" ".join(str(part.get("value")) for part in about["args"]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(about["exceptionDetails"])[:500])


@contextmanager
def tab(chromium: str) -> Iterator[Page]:
    """A browser of its own with an empty profile, ended afterwards."""
    its_commands, commands = os.pipe()
    replies, its_replies = os.pipe()
    # Chromium reads commands from descriptor 3 and writes replies to 4.
    start = f'exec "$0" "$@" 3<&{its_commands} 4>&{its_replies}'
    with tempfile.TemporaryDirectory(prefix="tacit-chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", start, chromium, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(its_commands, its_replies),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(its_commands)
        os.close(its_replies)
        try:
            yield Page(commands, replies)
        finally:
            process.terminate()
            process.wait(timeout=120)
            os.close(commands)
            os.close(replies)
