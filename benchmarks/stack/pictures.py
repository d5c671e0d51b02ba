"""Pictures of Airflow's, MLflow's and our own pages, as a person who logged in sees them."""

from base64 import b64encode
from dataclasses import replace
from pathlib import Path

from PIL import Image

from tests.helpers.processes.server import token_of, until
from tests.helpers.processes.stack import Stack
from tests.helpers.reports.browser import Page

_COLOURS = 256


class Pictures:
    """Takes pictures of the pages of one stack into a folder; without one it takes none."""

    def __init__(self, servers: Stack, page: Page, folder: Path) -> None:
        self.servers, self.page, self.folder = servers, page, folder
        folder.mkdir(parents=True, exist_ok=True)
        password = (servers.home / "passwords" / "mlflow").read_text(encoding="utf-8").strip()
        self.mlflow_login = "Basic " + b64encode(f"mlflow:{password}".encode()).decode()

    def airflow(
        self, name: str, path: str, sees: str, size: tuple[int, int], user: str = "admin", then: str = ""
    ) -> None:
        server = replace(self.servers.airflow, user=user)
        self.page.call("Network.setCookie", name="_token", value=token_of(server), url=server.address)
        self.take(name, f"{server.address}/{path}", sees, size, then)

    def mlflow(self, name: str, path: str, sees: str, size: tuple[int, int]) -> None:
        self.page.call("Network.setExtraHTTPHeaders", headers={"Authorization": self.mlflow_login})
        self.take(name, f"http://127.0.0.1:{self.servers.environment['MLFLOW_PORT']}/{path}", sees, size)
        self.page.call("Network.setExtraHTTPHeaders", headers={})

    def take(self, name: str, place: Path | str, sees: str, size: tuple[int, int], then: str = "") -> None:
        """Open a page, wait until a text stands on it, and keep a picture in few colours."""
        self.page.open("about:blank", *size)  # a page of one script would not load another address of its own anew
        self.page.open(place, *size)
        until(lambda: sees in str(self.page.evaluate("document.body.innerText")), 60)
        self.page.evaluate(f"{then}; new Promise(done => setTimeout(done, 3000))")
        path = self.folder / f"{name}.png"
        self.page.screenshot(path)
        self.page.evaluate("localStorage.clear()")  # the next page stands as for who never chose a view
        Image.open(path).convert("RGB").quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
