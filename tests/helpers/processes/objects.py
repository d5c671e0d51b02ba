"""Servers that speak the protocols of S3 (moto) and Google Cloud Storage (gcp-storage-emulator), and their buckets."""

import itertools
import json
import subprocess
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.helpers.processes.ports import free_port

Scheme = Literal["s3", "gs"]
PACKAGES = ("moto[s3]==5.2.5", "boto3==1.44.8", "flask==3.1.3", "flask-cors==6.0.5", "gcp-storage-emulator==2026.7.19")
SECRET = "open-sesame"
_COMMANDS = {
    "s3": ("moto_server", "--host", "127.0.0.1", "--port"),
    "gs": ("gcp-storage-emulator", "start", "--in-memory", "--host", "127.0.0.1", "--port"),
}
# Variable by which each store's client finds the server.
SERVER = {"s3": "AWS_ENDPOINT_URL", "gs": "CLOUD_STORAGE_EMULATOR_ENDPOINT"}
# The servers look for a signature and not at it.
_SIGNED = "AWS4-HMAC-SHA256 Credential=tests/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
_numbers = itertools.count()


def install(folder: Path) -> str:
    """Make the servers' environment once; returns why that failed, empty if it is there."""
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
def server(folder: Path, scheme: Scheme) -> Iterator[str]:
    """Address of a server that ends with the block."""
    port = free_port()
    program, *arguments = _COMMANDS[scheme]
    command = [folder / "bin" / program, *arguments, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(address, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except urllib.error.URLError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def credentials(scheme: Scheme, folder: Path) -> dict[str, str]:
    """Variables with credentials that no real store knows, which hold SECRET."""
    if scheme == "s3":
        return {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
    key = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {"type": "service_account", "client_email": f"{SECRET}@tests.example", "private_key_id": SECRET}
    account |= {"private_key": key.decode(), "token_uri": "http://127.0.0.1:9/token"}
    # In a folder of its own: a test's files are all that its folder holds.
    file = folder / "google" / "account.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(account), encoding="utf-8")
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}


@dataclass(frozen=True)
class Bucket:
    """One bucket of a server."""

    scheme: Scheme
    server: str
    name: str

    @classmethod
    def made(cls, scheme: Scheme, address: str) -> "Bucket":
        """A bucket of a new name, as clients of one are kept by its name."""
        made = cls(scheme, address, f"people-{next(_numbers)}")
        if scheme == "s3":
            made.ask("PUT", made.name)
        else:
            made.ask("POST", "storage/v1/b?project=tests", json.dumps({"name": made.name}).encode(), "application/json")
        return made

    def address(self, key: str) -> str:
        return f"{self.scheme}://{self.name}/{key}"

    def put(self, key: str, content: bytes) -> str:
        """Write an object, and return its address."""
        if self.scheme == "s3":
            self.ask("PUT", f"{self.name}/{quote(key)}", content)
        else:
            self.ask("POST", f"upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(key, safe='')}", content)
        return self.address(key)

    def delete(self, key: str) -> None:
        of_google = f"storage/v1/b/{self.name}/o/{quote(key, safe='')}"
        self.ask("DELETE", f"{self.name}/{quote(key)}" if self.scheme == "s3" else of_google)

    def ask(self, method: str, path: str, content: bytes | None = None, kind: str = "application/octet-stream") -> None:
        headers = {"Content-Type": kind, "Authorization": _SIGNED}
        request = urllib.request.Request(f"{self.server}/{path}", content, headers, method=method)
        urllib.request.urlopen(request, timeout=60).close()
