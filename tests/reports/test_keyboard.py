"""Keyboards of published launches: who gets one, and what their page holds. ``tests/browser`` types on one."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

from evaluation.keyboard import layouts
from pretrain.ngrams.counted import CountedNGram
from pretrain.text.tokenise import for_browsers
from pretrain.text.vocabulary import EOS, SPECIALS, Vocabulary, join_owners
from reports import keyboard, site
from reports.keyboard import Writing
from reports.site import PublicModel, Site
from tests.helpers.reports.keyboard_run import (
    WORDS,
    add_published,
    add_report,
    no_public_model,
    other_model,
    published_in,
)
from tests.helpers.reports.reports_example import block, example, visible
from tests.helpers.text.counted_devices import moved

SCRIPT = "var a=1,b=2,c=3;export{a as InferenceSession,b as Tensor,c as env};\n//# sourceMappingURL=x.map\n"


def install(folder: Path, script: str = SCRIPT) -> Path:
    """What ``make web`` leaves, in small."""
    package = folder / "node_modules" / "onnxruntime-web"
    (package / "dist").mkdir(parents=True)
    (package / "package.json").write_text('{"version": "9.9.9"}', encoding="utf-8")
    (package / "dist" / "ort.wasm.bundle.min.mjs").write_text(script, encoding="utf-8")
    (package / "dist" / "ort-wasm-simd-threaded.wasm").write_bytes(b"machine code")
    return folder


def build(runs: Path, web: Path, public_model: PublicModel = no_public_model) -> Site:
    def writing(locale: str) -> Writing:
        return Writing(layouts.rows(locale), for_browsers(locale))

    return site.build(runs, web, writing, published_in(runs), public_model)


def small_counts() -> CountedNGram:
    known = Vocabulary((*SPECIALS, *WORDS))
    return moved(join_owners([np.array([*range(len(SPECIALS), len(known)), EOS] * 3)]), known)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def web(tmp_path: Path) -> Path:
    return install(tmp_path / "web")


def test_a_published_launch_gets_a_page_that_holds_everything(runs: Path, web: Path) -> None:
    bundle = add_published(runs, "some-launch")
    made = build(runs, web)
    assert made.keyboards == (runs / "keyboards" / "some-launch.html",)
    assert 'href="keyboards/some-launch.html"' in made.index.read_text(encoding="utf-8")
    page = made.keyboards[0].read_text(encoding="utf-8")
    held = dict(re.findall(r'<script type="text/plain" id="(\w+)">([^<]*)</script>', page))
    assert base64.b64decode(held["model"]) == (bundle / "model.onnx").read_bytes()
    assert gzip.decompress(base64.b64decode(held["runtime"])) == b"machine code"
    (launch,) = re.findall(r'<script type="application/json" id="launch">(.*?)</script>', page, flags=re.DOTALL)
    assert json.loads(launch)["words"] == json.loads((bundle / "vocabulary.json").read_text(encoding="utf-8"))
    assert json.loads(launch)["rules"] == for_browsers("en-US")
    assert len(page) < 200_000 + len(held["model"]) + len(held["runtime"])
    text = visible(page)
    for shown in ("test-fixture-01", "launch", "ε 7.03 (training 5.02)", "δ 1e-06", "network", "MIT License", "9.9.9"):
        assert shown in text
    assert 'href="../some-launch/public/report/report.html"' in page


def test_the_page_holds_the_public_model_beside_the_launched_one(runs: Path, web: Path) -> None:
    bundle = add_published(runs, "some-launch")
    page = build(runs, web, other_model).keyboards[0].read_text(encoding="utf-8")
    held = dict(re.findall(r'<script type="text/plain" id="(\w+)">([^<]*)</script>', page))
    assert base64.b64decode(held["start"]) == other_model("some-launch", bundle)
    assert "The same text on the public model" in visible(page)
    alone = build(runs, web).keyboards[0].read_text(encoding="utf-8")
    assert 'id="start"' not in alone
    assert "The same text on the public model" not in visible(alone)


def test_the_policy_names_every_script_and_allows_no_connection(runs: Path, web: Path) -> None:
    add_published(runs, "some-launch")
    page = build(runs, web).keyboards[0].read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = {name: sources for name, *sources in (rule.split() for rule in policy.split("; "))}
    scripts = re.findall(r'<script type="module">(.*?)</script>', page, flags=re.DOTALL)
    digests = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts]
    assert len(scripts) == 2
    assert rules["script-src"] == [*digests, "'wasm-unsafe-eval'"]
    assert rules["default-src"] == rules["connect-src"] == rules["form-action"] == ["'none'"]
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")
    # Nothing by address, and no style that no digest covers.
    assert re.findall(r'(?:src|srcset|style|onclick)="|@import|url\(|sourceMappingURL', page) == []
    assert "globalThis.ort={InferenceSession:a,Tensor:b,env:c};" in scripts[0]


def test_what_a_launch_says_of_itself_is_text(runs: Path, web: Path) -> None:
    evil = '"><script>alert(1)</script>'
    add_published(runs, "some-launch", example(launch=block("launch", id=evil, feature="NWP")))
    page = build(runs, web).keyboards[0].read_text(encoding="utf-8")
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == 5  # the vocabulary holds one, too


def test_a_mixture_and_a_seeded_launch_say_what_they_are(
    runs: Path, web: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeded = {
        "launch": block("launch", seeded_randomness=True),
        "accounting": block("accounting", randomness="seeded"),
    }
    arms = block("utility")["arms"]
    arms += [{**arm, "arm": "network", "value": arm["value"] + 0.01} for arm in arms if arm["arm"] == "start"]
    seeded["utility"] = block("utility", arms=arms)
    counts = small_counts()
    bundle = add_published(runs, "some-launch", example(**seeded), counts=counts)
    page = build(runs, web).keyboards[0].read_text(encoding="utf-8")
    held = dict(re.findall(r'<script type="text/plain" id="(\w+)">([^<]*)</script>', page))
    assert base64.b64decode(held["counts"]) == (bundle / "counts.npz").read_bytes()
    text = visible(page)
    assert "mixed with the counts, as published" in text
    monkeypatch.setattr(keyboard, "MOST_COUNTS", 10)
    page = build(runs, web).keyboards[0].read_text(encoding="utf-8")
    assert "uses the network alone: the counts that the release mixes in are too large" in visible(page)
    assert "(top-1 recall on held-out devices: network 7.00%, release 9.00%)" in visible(page)
    assert 'id="counts"' not in page
    assert "protects nobody" in text
    assert "ε" not in text


@pytest.mark.parametrize("locale", ["fr-FR", "el-GR", "es-ES"])
def test_the_page_has_the_keys_of_its_locale(runs: Path, web: Path, locale: str) -> None:
    add_published(runs, "some-launch", example(launch=block("launch", locale=locale)))
    page = build(runs, web).keyboards[0].read_text(encoding="utf-8")
    letters = "".join(re.findall(r'data-letter="(.)"', page.replace("&#39;", "'")))
    assert (
        letters == {"fr-FR": "azertyuiopqsdfghjklmwxcvbn'", "el-GR": "", "es-ES": "qwertyuiopasdfghjklñzxcvbnm"}[locale]
    )


def test_without_the_runtime_the_index_says_how_to_get_it(runs: Path, tmp_path: Path, web: Path) -> None:
    add_published(runs, "some-launch")
    nothing = tmp_path / "nothing"
    made = build(runs, nothing)
    assert (made.keyboards, made.without) == ((), 1)
    assert "make web" in visible(made.index.read_text(encoding="utf-8"))
    build(runs, web)
    made = build(runs, nothing)
    assert (len(made.keyboards), made.without) == (1, 0), "a page of before stays"
    assert "make web" not in made.index.read_text(encoding="utf-8")


def test_a_held_launch_has_no_keyboard(runs: Path, web: Path) -> None:
    held = example(decision=block("decision", decision="hold", reasons=["a gate"]))
    add_published(runs, "held", held)  # as if somebody had copied a bundle in
    add_report(runs, "unpublished")
    add_published(runs, "said-no")
    record = runs / "said-no" / "public" / "publish" / "result.json"
    record.write_text(record.read_text(encoding="utf-8").replace("true", "false"), encoding="utf-8")
    made = build(runs, web)
    assert (made.keyboards, made.without) == ((), 0)
    assert "keyboards/" not in made.index.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "name", ["bundle/counts.npz", "bundle/model.onnx", "bundle/vocabulary.json", "bundle/truecase.json", "report"]
)
def test_files_that_are_not_those_published_give_no_keyboard(
    runs: Path, web: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    add_published(runs, "some-launch", counts=small_counts())
    assert len(build(runs, web).keyboards) == 1
    public = runs / "some-launch" / "public"
    path = public / "report" / "disclosure.json" if name == "report" else public / "publish" / name
    path.write_bytes(path.read_bytes() + b" ")
    assert build(runs, web).keyboards == ()
    assert not list((runs / "keyboards").iterdir()), "nor does that of before stay"
    assert "published" in caplog.text


def test_another_kind_of_runtime_is_refused(tmp_path: Path) -> None:
    for number, script in enumerate(("export default 1;", "export{a as Tensor};", SCRIPT + "</script>")):
        with pytest.raises(ValueError, match="make web"):
            keyboard.load_runtime(install(tmp_path / str(number), script))


def test_the_lock_file_pins_by_digest_and_names_no_registry() -> None:
    folder = Path(keyboard.__file__).parent / "web"
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    locked = (folder / "package-lock.json").read_text(encoding="utf-8")
    packages = {name: about for name, about in json.loads(locked)["packages"].items() if name}
    assert [name for name, about in packages.items() if not about["integrity"].startswith("sha512-")] == []
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert "://" not in locked
