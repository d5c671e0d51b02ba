"""A mail server and a web server on loopback that keep what comes to them.

For Airflow's environment too: no import of this project.
"""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receivers:
    """Each message with the time of its arrival (``time.monotonic``); ``posts`` and ``gets`` also with their path.

    Attributes:
      environment: Airflow's connections to both, and the recipients of notices.
      web: address of the web server.
    """

    mail: list[tuple[float, str]] = field(default_factory=list)
    posts: list[tuple[float, str, str]] = field(default_factory=list)
    gets: list[tuple[float, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    web: str = ""


@contextmanager
def receivers() -> Iterator[Receivers]:
    heard = Receivers()

    class Mail(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                word = line.split()[0].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    heard.mail.append((time.monotonic(), b"".join(lines).decode()))
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 well\r\n")
                if word == b"QUIT":
                    return

    class Web(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            heard.posts.append((time.monotonic(), self.path, body))
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            heard.gets.append((time.monotonic(), self.path))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    servers = [socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail), ThreadingHTTPServer(("127.0.0.1", 0), Web)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.05,)) for server in servers]
    for thread in threads:
        thread.start()
    mail, web = (server.server_address[1] for server in servers)
    plain = json.dumps({"from_email": "tacit@example.org", "disable_ssl": True, "disable_tls": True, "retry_limit": 1})
    smtp = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail, "extra": plain}
    heard.web = f"http://127.0.0.1:{web}"
    heard.environment = {
        "AIRFLOW_CONN_SMTP_DEFAULT": json.dumps(smtp),
        "AIRFLOW_CONN_HOOK": heard.web,
        "TACIT_MAIL_TO": "team@example.org, reviewer@example.org",
        "TACIT_WEBHOOK": "hook",
    }
    try:
        yield heard
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()
