"""The parts of the Hugging Face hub's protocol that ``datasets`` needs to stream, on loopback, from a local clone."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Hub:
    """A hub that has one commit of one dataset.

    Attributes:
      asked: path of every request so far.
    """

    address: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(clone: Path, dataset: str, commit: str) -> Iterator[Hub]:
    """Serve ``clone`` as the only commit of ``dataset``, until the block ends."""
    asked: list[str] = []
    api, files = f"/api/datasets/{dataset}", f"/datasets/{dataset}/resolve/{commit}/"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            asked.append(path)
            if path == f"{api}/revision/{commit}":
                self._answer(200, json.dumps({"id": dataset, "sha": commit, "tags": [], "siblings": []}).encode())
            elif path.startswith(f"{api}/tree/{commit}"):
                folder = clone / path.removeprefix(f"{api}/tree/{commit}").strip("/")
                entries = [_entry(clone, each) for each in sorted(folder.iterdir())]
                self._answer(200, json.dumps(entries).encode())
            elif path.startswith(files) and (file := clone / path.removeprefix(files)).is_file():
                self._send(file.read_bytes())
            else:
                self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})

        do_HEAD = do_GET

        def _send(self, content: bytes) -> None:
            headers = {"ETag": f'"{_digest(content)}"', "X-Repo-Commit": commit}
            if (wanted := self.headers.get("Range")) is None:
                self._answer(200, content, headers)
                return
            first, last = map(int, re.findall(r"\d+", wanted))
            span = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
            self._answer(206, content[first : last + 1], headers | span)

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Requests are in ``Hub.asked``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Hub(f"http://127.0.0.1:{server.server_port}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _entry(clone: Path, path: Path) -> dict[str, object]:
    name = str(path.relative_to(clone))
    if path.is_dir():
        return {"type": "directory", "path": name, "size": 0, "oid": "0" * 40}
    content = path.read_bytes()
    return {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}


def _digest(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
