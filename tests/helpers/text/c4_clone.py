"""A small clone of the allenai/c4 repository: its layout, config names and fields, with text made for tests."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

README = """---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/c4-train.*.json.gz
  - split: validation
    path: en/c4-validation.*.json.gz
- config_name: es
  data_files:
  - split: train
    path: multilingual/c4-es.*.json.gz
  - split: validation
    path: multilingual/c4-es-validation.*.json.gz
---
"""


def texts(name: str, number: int) -> list[str]:
    """Distinct documents of two sentences with four words each."""
    spelt = [str(item).translate(str.maketrans("0123456789", "abcdefghij")) for item in range(number)]
    return [f"Document {name} {word} here. It has two sentences." for word in spelt]


def write_c4(path: Path, documents: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for number, text in enumerate(documents):
            # Files of dates alone, and others with a timestamp that no type but a string can hold.
            timestamp = "2019-04-25T12:57:54Z" if number % 5 or "-00000-" in path.name else "unknown"
            file.write(json.dumps({"text": text, "timestamp": timestamp, "url": f"https://x/{number}"}) + "\n")


def write_clone(root: Path) -> Path:
    """English and one language of mC4: three train files and one validation file each."""
    for number in range(3):
        write_c4(root / f"en/c4-train.{number:05d}-of-00003.json.gz", texts(f"train{'abc'[number]}", 40))
        write_c4(root / f"multilingual/c4-es.tfrecord-{number:05d}-of-00003.json.gz", texts(f"año{'abc'[number]}", 40))
    write_c4(root / "en/c4-validation.00000-of-00001.json.gz", texts("validation", 20))
    write_c4(root / "multilingual/c4-es-validation.tfrecord-00000-of-00001.json.gz", texts("validación", 20))
    (root / "README.md").write_text(README, encoding="utf-8")
    return root
