"""The package index's `tacit` is another project with a module of the same name: one environment holds one."""

from pathlib import Path


def alone() -> None:
    """Check that the other project is not installed in the same folder.

    Raises:
      ImportError: it is, and one has overwritten files of the other.
    """
    for other in Path(__file__).parents[1].glob("tacit-[0-9]*.dist-info"):
        raise ImportError(
            f"{other.stem} is another project, and shares the module `tacit` with tacit-keyboard: install "
            "tacit-keyboard into an environment of its own"
        )
