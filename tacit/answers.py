"""Values that the public functions return: they print as the commands do, and most of them plot."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

T = TypeVar("T")
_DPI = 144


@dataclass(frozen=True, repr=False)
class Answer(Generic[T]):
    """A value of the pipeline with its text.

    Attributes:
      value: what the function behind the command returned; its fields are those of the command's ``--json``.
      text: what the command prints.
    """

    value: T
    text: str = field(compare=False)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass(frozen=True)
class Plot:
    """A picture, which notebooks show.

    Attributes:
      figure: of matplotlib, to change before it is saved.
    """

    figure: "Figure"

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file, in the format of its suffix: PNG, SVG or PDF.

        Raises:
          ValueError: matplotlib writes no such format.
        """
        self.figure.savefig(path, dpi=_DPI)
        return Path(path)

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.figure.savefig(content, format="png", dpi=_DPI, facecolor="white", metadata={"Software": None})
        return content.getvalue()


def drawn(draw: "Callable[[Axes], None]", height: float = 2.7) -> Plot:
    """Return the picture that ``draw`` makes, in the style of the report; ``height`` is in inches."""
    from reports.figures.style import figure_of

    return Plot(figure_of(draw, height))
