"""Opens that the kernel tells: those of this process alone, and none of them lost in silence."""

import logging
import resource
import subprocess
from pathlib import Path

import pytest

from pretrain import opens


def test_files_of_folders_and_single_files_are_seen_and_no_others(tmp_path: Path) -> None:
    for name in ("in/store", "in/below/store", "alone", "beside"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    watch = opens.watch(str(tmp_path / name) for name in ("in", "alone", "gone"))
    for name in ("in/below/store", "beside", "alone", "in/store"):
        (tmp_path / name).read_bytes()
    assert watch.ended() == ["alone", "store"]


def test_what_another_process_opens_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    watch = opens.watch([str(tmp_path)])
    subprocess.run(["cat", tmp_path / "store"], check=True)
    assert watch.ended() == []


def test_opens_that_the_kernel_could_not_keep_are_an_error(tmp_path: Path) -> None:
    watch = opens.watch([str(tmp_path)])
    most = int(Path("/proc/sys/fs/fanotify/max_queued_events").read_text(encoding="ascii"))
    for number in range(most + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(OSError, match="too many files are opened at once"):
        watch.ended()


def test_a_process_that_the_kernel_tells_nothing_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with caplog.at_level(logging.WARNING):
            watch = opens.watch([str(tmp_path)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watch.ended() == []
    assert caplog.messages == ["files that libraries open by themselves are not seen here: Too many open files"]
