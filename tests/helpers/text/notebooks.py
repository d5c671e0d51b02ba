"""Run the cells of a notebook in this process, and write their outputs.

python -m tests.helpers.text.notebooks docs/notebooks/*.ipynb
"""

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def outputs(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Outputs of each code cell, as a notebook keeps them, after running all cells in order in one namespace.

    A cell's last expression is shown, as a picture if it has one (``_repr_png_``). An error of a cell is raised.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    return [_run("".join(cell["source"]), space) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run(source: str, space: dict[str, Any]) -> list[dict[str, Any]]:
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    found = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)})
    if value is not None:
        data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
        if picture := getattr(value, "_repr_png_", None):
            data = {"image/png": base64.b64encode(picture()).decode(), "text/plain": ["<picture>"]}
        found.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return found


def load(path: Path) -> dict[str, Any]:
    """Read a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


def main(paths: list[str]) -> None:
    """Run each notebook, and write it with its outputs."""
    for path in map(Path, paths):
        notebook = load(path)
        for cell, made in zip(_code(notebook), outputs(notebook), strict=True):
            cell["outputs"], cell["execution_count"] = made, None
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


if __name__ == "__main__":
    main(sys.argv[1:])
