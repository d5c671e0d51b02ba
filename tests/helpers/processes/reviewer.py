"""A reviewer at a browser: logs in to Airflow by its form, reads the question, and answers it."""

import json
from urllib.parse import quote

from tests.helpers.processes.server import Server, until
from tests.helpers.reports.browser import Page

COMMENT = "read in a browser"


def approve(page: Page, server: Server, dag: str, run: str) -> str:
    """Text of the question, whose every box is ticked and which is approved; ``server`` names the reviewer."""

    def true(expression: str) -> bool:
        try:
            return bool(page.evaluate(expression))
        except RuntimeError:  # the page goes to the next one
            return False

    def there(selector: str) -> str:
        found = f"document.querySelector({json.dumps(selector)})"
        until(lambda: true(f"!!{found}"), 120)
        return found

    def typed(name: str, text: str) -> None:
        page.evaluate(f"{there(f'[name={name}]')}.focus()")
        page.call("Input.insertText", text=text)

    page.open(f"{server.address}/dags/{dag}/runs/{quote(run, safe='')}/tasks/approve/required_actions", 1400, 2000)
    typed("username", server.user)
    typed("password", (server.passwords / server.user).read_text(encoding="utf-8").strip())
    page.evaluate(f"{there('[type=submit]')}.click()")
    answer = there("[data-testid=hitl-option-Approve]")
    question = str(page.evaluate("document.body.innerText"))
    page.evaluate("document.querySelectorAll('[name^=element_concern_]').forEach(box => box.click())")
    typed("element_comment", COMMENT)
    page.evaluate(f"{answer}.click()")
    until(lambda: true(f"document.body.innerText.includes({json.dumps(f'from {server.user}')})"), 120)
    return question
