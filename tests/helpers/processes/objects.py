"""A server that speaks S3's protocol, moto's, and buckets of it."""

import itertools
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tests.helpers.processes.ports import free_port

PACKAGES = ("moto[s3]==5.2.5", "boto3==1.44.8", "flask==3.1.3", "flask-cors==6.0.5")
SECRET = "open-sesame"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
# The server looks for a signature and not at it.
_SIGNED = "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_numbers = itertools.count()


def install(folder: Path) -> str:
    """Make the server's environment once; returns why that failed, empty if it is there."""
    note = folder / "installed"
    if note.is_file() and note.read_text(encoding="utf-8") == " ".join(PACKAGES):
        return ""
    venv.create(folder, with_pip=True, clear=True)
    command = [folder / "bin" / "pip", "install", "--quiet", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        return done.stderr.strip()[-300:]
    note.write_text(" ".join(PACKAGES), encoding="utf-8")
    return ""


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Address of a server that ends with the block."""
    port = free_port()
    command = [folder / "bin" / "moto_server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except urllib.error.URLError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Bucket:
    """One bucket of a server."""

    server: str
    name: str

    @classmethod
    def made(cls, address: str) -> "Bucket":
        """A bucket of a new name, as clients of one are kept by its name."""
        made = cls(address, f"people-{next(_numbers)}")
        made.ask("PUT", "")
        return made

    def address(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, content: bytes) -> str:
        """Write an object, and return its address."""
        self.ask("PUT", key, content)
        return self.address(key)

    def delete(self, key: str) -> None:
        self.ask("DELETE", key)

    def ask(self, method: str, key: str, content: bytes | None = None) -> None:
        headers = {"Content-Type": "application/octet-stream", "Authorization": _SIGNED}
        request = urllib.request.Request(f"{self.server}/{self.name}/{quote(key)}", content, headers, method=method)
        urllib.request.urlopen(request, timeout=60).close()
