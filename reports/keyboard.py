"""A page on which a reviewer types with the model of a published launch: one file, no server, no network.

Beside it the page shows what the public model suggests for the same text, and marks what is not among that.

The page holds the model, the vocabulary, the runtime (onnxruntime-web, which ``make web`` installs) and the scripts of
``web/``. Its Content-Security-Policy names the digests of its scripts and forbids every connection.

Guarantee: a page shows only the content of a bundle and the launch's public model, which are released and accounted
for already. A launch gets one only if its decision is to launch, it was published, and its files have the digests of
their publication.
"""

import base64
import gzip
import hashlib
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pretrain.files import sha256, write_text
from reports.disclosure.document import Disclosure
from reports.disclosure.utility import Beginning
from reports.render import environment

_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("writing.js", "counts.js", "model.js", "keyboard.js")
_PACKAGE = Path("node_modules") / "onnxruntime-web"
_MODEL, _WORDS, _USUAL, _COUNTS = "model.onnx", "vocabulary.json", "truecase.json", "counts.npz"
# Bytes; base64 makes the page a third larger, which browsers still open.
MOST_COUNTS = 64 << 20
_LOG = logging.getLogger(__name__)

# Everyday beginnings of the comparison for which the page shows suggestions.
_MOST_OPENINGS = 5
_SPECIALS = 4  # tokens that a vocabulary begins with
_FREQUENT = slice(_SPECIALS, _SPECIALS + _MOST_OPENINGS)


@dataclass(frozen=True)
class Writing:
    """Typing of a locale: its keys and its rules.

    Attributes:
      rows: letters of its keys; empty where no layout is known.
      rules: rules of tokenisation (``pretrain.text.tokenise.for_browsers``).
    """

    rows: tuple[str, ...]
    rules: Mapping[str, Any]


@dataclass(frozen=True)
class Runtime:
    """onnxruntime-web in the form in which a page holds it.

    Attributes:
      script: a module that sets the global name ``ort``.
      wasm: its WebAssembly, gzipped, base64.
    """

    version: str
    script: str
    wasm: str


def load_runtime(folder: Path) -> Runtime | None:
    """Runtime that ``make web`` installed into a folder; None if nothing is there.

    Raises:
      ValueError: the installed onnxruntime-web has another layout of files.
    """
    package = folder / _PACKAGE
    if not (package / "package.json").is_file():
        return None
    script = (package / "dist" / "ort.wasm.bundle.min.mjs").read_text(encoding="utf-8")
    # Other scripts of a page cannot import an inline module, so its exports become a global name.
    exports = re.findall(r"\bexport\s*\{([^{}]*)\}", script)
    names = dict(reversed(pair.split(" as ")) for pair in exports[0].split(",")) if len(exports) == 1 else {}
    if not {"InferenceSession", "Tensor", "env"} <= names.keys() or "</script" in script:
        raise ValueError(
            f"{package}: not a version that pages can hold; remove {folder} and install the pinned one with 'make web'"
        )
    wanted = ",".join(f"{name}:{names[name]}" for name in ("InferenceSession", "Tensor", "env"))
    script = re.sub(r"\n//# sourceMappingURL=.*", "", script) + f"\nglobalThis.ort={{{wanted}}};\n"
    wasm = (package / "dist" / "ort-wasm-simd-threaded.wasm").read_bytes()
    version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    return Runtime(version, script, _base64(gzip.compress(wasm, 6, mtime=0)))


def bundle_of(run: Path, disclosure: Disclosure, published: Mapping[str, str]) -> Path | None:
    """The bundle of a published run; None if it was not published or has changed since.

    Args:
      published: digests of the files of stage ``publish``, from a record whose digest the ledger holds; empty if it
        published nothing.
    """
    bundle = run / "public" / "publish" / "bundle"
    if disclosure.decision.decision != "launch" or f"bundle/{_MODEL}" not in published:
        return None  # No network: the launch ships counts alone, and the page needs a network.
    for name in (_MODEL, _WORDS, _USUAL, _COUNTS, "bundle.json", "disclosure.json"):
        digest = published.get(f"bundle/{name}")
        # Not every launch ships counts.
        if (digest is not None or name != _COUNTS) and (
            not (bundle / name).is_file() or sha256(bundle / name) != digest
        ):
            _LOG.warning("%s: not the file that was published; the launch gets no keyboard", bundle / name)
            return None
    if sha256(run / "public" / "report" / "disclosure.json") != published["bundle/disclosure.json"]:
        _LOG.warning("%s: its report is not the one that was published; the launch gets no keyboard", run)
        return None
    return bundle


def write(
    page: Path,
    bundle: Path,
    disclosure: Disclosure,
    report: str,
    writing: Writing,
    runtime: Runtime,
    start: bytes | None,
) -> None:
    """Write the page of a bundle.

    Args:
      report: address of the launch's report, from the page.
      start: the public model with the new words, as a graph; None where its files are gone.
    """
    about, words = _read(bundle / "bundle.json"), _read(bundle / _WORDS)
    usual = _read(bundle / _USUAL)
    mixture = about.get("ships") == "mixture"
    counts = bundle / _COUNTS if mixture and (bundle / _COUNTS).stat().st_size <= MOST_COUNTS else None
    launch = {"locale": about["locale"], "words": words, "usual": usual, "rules": writing.rules}
    text = (
        environment(html=True)
        .get_template("keyboard.html.j2")
        .render(
            d=disclosure,
            report=report,
            launch=launch,
            words=len(words) - _SPECIALS,
            mixture=mixture,
            counts=counts and _base64(counts.read_bytes()),
            recall=_recall(disclosure),
            rows=writing.rows,
            openings=_openings(disclosure) or words[_FREQUENT],
            model=_base64((bundle / _MODEL).read_bytes()),
            start=start and _base64(start),
            runtime=runtime,
            engine=Markup(runtime.script),
            style=Markup((_WEB / "keyboard.css").read_text(encoding="utf-8")),
            script=Markup("".join((_WEB / name).read_text(encoding="utf-8") for name in _SCRIPTS)),
        )
    )
    write_text(page, text.replace(_POLICY, _policy(text), 1))


def _openings(disclosure: Disclosure) -> tuple[str, ...]:
    """Beginnings that the comparison judged, those with the largest gain first; none for most languages."""
    rows = disclosure.utility.beginnings if disclosure.utility else ()

    def lost(row: Beginning) -> int:
        return row.expected["start"] - row.expected["private"]

    return tuple(row.text for row in sorted(rows, key=lost)[:_MOST_OPENINGS])


def _recall(disclosure: Disclosure) -> tuple[float, float] | None:
    """Top-1 recall of a mixture's network alone and of the mixture, if both were compared."""
    arms = disclosure.utility.arms if disclosure.utility else ()
    top1 = {arm.arm: arm.value for arm in arms if arm.metric == "top1_recall"}
    network = "network" if "network" in top1 else "start"
    return (top1[network], top1["private"]) if {network, "private"} <= top1.keys() else None


# Placeholder for the page's policy, which holds digests of the rendered scripts and styles.
_POLICY = "default-src 'none'"


def _policy(text: str) -> str:
    """A page with its policy in place of ``_POLICY``: it may run and use only its own scripts and styles."""
    scripts = re.findall(r'<script type="module">(.*?)</script>', text, flags=re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    allowed = {
        "script-src": [*map(digest, scripts), "'wasm-unsafe-eval'"],
        "style-src": [digest(style) for style in styles],
        "connect-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join([_POLICY, *(f"{name} {' '.join(sources)}" for name, sources in allowed.items())])


def digest(inside: str) -> str:
    """Source expression by which a page's policy allows an inline script or style: its SHA-256."""
    return f"'sha256-{_base64(hashlib.sha256(inside.encode()).digest())}'"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
