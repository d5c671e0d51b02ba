"""A launch's reviewer, who answers Airflow's question in a browser."""

from urllib.parse import quote

from tests.helpers.processes.server import Server, until
from tests.helpers.reports.browser import Page

_COMMENT = "document.querySelector('#element_comment')"
_BOXES = "[...document.querySelectorAll('input[name^=element_concern_]')]"
_BUTTON = "[...document.querySelectorAll('button')].find(each => each.innerText.trim() === 'Approve')"


def approve(page: Page, server: Server, dag: str, run: str, comment: str) -> str:
    """Log in as the server's user, accept every concern, comment and approve; returns the page as it then reads."""
    page.open(f"{server.address}/dags/{dag}/runs/{quote(run, safe='')}/tasks/approve/required_actions", 1440, 1600)
    until(lambda: page.evaluate("document.querySelector('input[name=username]') !== null"), 60)
    password = (server.passwords / server.user).read_text(encoding="utf-8").strip()
    for field, text in (("username", server.user), ("password", password)):
        page.evaluate(f"document.querySelector('input[name={field}]').focus()")
        page.call("Input.insertText", text=text)
    page.press("Enter")
    until(lambda: page.evaluate(f"{_COMMENT} !== null"), 60)
    page.evaluate(f"{_BOXES}.forEach(box => box.click())")
    until(lambda: page.evaluate(f"{_BOXES}.every(box => box.checked)"), 60)
    page.evaluate(f"{_COMMENT}.focus()")
    page.call("Input.insertText", text=comment)
    page.evaluate(f"{_BUTTON}.click()")
    until(lambda: "Response received" in page.evaluate("document.body.innerText"), 60)
    return page.evaluate("document.body.innerText")
