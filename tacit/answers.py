"""Values that the public functions return: they print as the commands do, and most of them plot."""

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import pandas as pd
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


class Table(Answer[T], ABC):
    """An answer with rows, which become a data frame."""

    @abstractmethod
    def rows(self) -> Iterable[Mapping[str, Any]]:
        """Rows of the table; a nested mapping becomes columns of its own."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a data frame, unrounded."""
        import pandas as pd

        return pd.json_normalize(list(map(dict, self.rows())), sep="_")


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
