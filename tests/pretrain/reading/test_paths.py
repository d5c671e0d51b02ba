import errno
import os
from pathlib import Path

import pytest

from pipeline.ground.errors import PERMANENT, TEMPORARY, exit_code
from pretrain.reading import paths


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EACCES])
def test_what_only_a_person_can_change_is_permanent(number: int):
    assert exit_code(OSError(number, os.strerror(number))) == PERMANENT


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ESTALE])
def test_what_passes_is_temporary(number: int):
    assert exit_code(OSError(number, os.strerror(number))) == TEMPORARY


def test_a_file_above_its_limit_is_not_opened(tmp_path: Path):
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ValueError, match=r"field: .*large has 1,099,511,627,776 bytes, and at most 10 are read; fix"):
        paths.read_text(path, "field", "fix", 10)


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "", "\ud800", "9" * 5000, "NaN{"])
def test_what_is_no_json_names_the_file(tmp_path: Path, content: str):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(ValueError, match=r"^field: .*x\.json is") as caught:
        paths.read_json(path, "field", "fix")
    assert "\n" not in str(caught.value)


def test_what_is_shown_breaks_no_line():
    assert paths.shown("a\nb\x1b[31m") == r"'a\nb\x1b[31m'"
    assert len(paths.shown("x" * 10_000)) < 200
    assert paths.shown("naïve") == "naïve"


@pytest.mark.parametrize("path", ["/proc/self/mem", "/proc/self/status", "/proc/self/../version"])
def test_files_of_the_kernel_are_no_text(tmp_path: Path, path: str):
    with pytest.raises(ValueError, match="a file of the kernel"):
        paths.require_file(Path(path), "field", "name files")
    link = tmp_path / "typed.jsonl"
    link.symlink_to(path)
    with pytest.raises(ValueError, match="a file of the kernel"):
        paths.require_file(link, "field", "name files")


@pytest.mark.parametrize("pattern", ["/proc/**", "/sys/**/*.jsonl", "/proc/[0-9]*/mem", "/**/*.jsonl", "/*/**"])
def test_a_glob_that_may_never_end_is_refused(pattern: str):
    with pytest.raises(ValueError, match=r"field: .* looks through /.*; begin it with the folder of the text"):
        paths.require_walkable(pattern, "field")
