"""Published figures on privacy and noise, each with the inputs that it should follow from.

Numbers are strings as printed, so that their last digit shows their rounding.
Nothing here was computed; ``federated.accounting.published`` does that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal

from federated.config.blt_presets import PRESETS

Quantity = Literal["rho", "epsilon", "MaxLoss", "RmsLoss"]
Recipe = Literal[
    "tree", "blt", "unit-columns", "printed-rho", "renyi-of-rho", "moments-2018", "without-replacement-2020",
    "tree-full", "blt-optimised", "banded-optimised", "unknown-strategy",
]  # fmt: skip

UP, CUT = "rounded up in the paper", "cut off in the paper, not rounded"
ALONE = "rounded up, alone in its table"
XU = "Xu et al. 2023"
BLT = "McMahan et al. 2024 (BLT)"
RAMASWAMY = "Ramaswamy et al. 2020"
MCMAHAN = "McMahan et al. 2018"
NOTEBOOK = "google-research/federated, DP-FTRL notebooks"
_DELTA = 1e-10  # of every Gboard launch


@dataclass(frozen=True)
class Row:
    """One published number, with the parameters from which it follows.

    Attributes:
      printed: as in the paper.
      recipe: how ``federated.accounting.published`` computes it from ``inputs``.
      slow: takes minutes.
      note: a remark on the inputs.
      departs: why ours, rounded, is known not to be the printed number; empty where it should be.
      preset: of the recipe ``blt``, whose parameters ran in production.
    """

    source: str
    table: str
    row: str
    quantity: Quantity
    printed: str
    recipe: Recipe
    inputs: Mapping[str, float] = field(default_factory=dict)
    slow: bool = False
    note: str = ""
    departs: str = ""
    preset: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", MappingProxyType(dict(self.inputs)))

    @property
    def published(self) -> float:
        """The printed number."""
        return float(self.printed)

    @property
    def name(self) -> str:
        """A short name that no other row has."""
        return f"{self.where}, {self.row}, {self.quantity}"

    @property
    def where(self) -> str:
        """Source and table, or section."""
        return f"{self.source}, {'table ' if self.table.isdigit() else ''}{self.table}"


def agrees(printed: str, ours: float) -> bool:
    """Return whether ``ours`` is at most half a unit of its last digit from the printed number."""
    exact = Decimal(printed)
    half = Decimal((0, (5,), int(exact.as_tuple().exponent) - 1))
    return abs(Decimal(ours) - exact) <= half


def _shape(rounds: int, mins: int, max_participations: int, noise_multiplier: float) -> dict[str, float]:
    return {
        "rounds": rounds,
        "mins": mins,
        "max_participations": max_participations,
        "noise_multiplier": noise_multiplier,
    }


# Tables 1 and 2, tree aggregation at noise multiplier 7: rounds, MinS (rounds strictly between), MaxP, zCDP, epsilon.
_XU = (
    ("1", "NWP de-DE", 930, 212, 4, "0.48", ""), ("1", "NWP en-GB", 980, 226, 4, "0.48", ""),
    ("1", "NWP fr-FR", 1280, 180, 5, "0.89", ""), ("1", "NWP it-IT", 1620, 303, 5, "0.71", ""),
    ("1", "NWP pt-PT", 530, 54, 8, "1.86", ""), ("1", "NWP es-ES", 1900, 526, 3, "0.35", ""),
    ("1", "NWP es-ES*", 1750, 349, 4, "0.52", ""), ("1", "NWP en-US", 2800, 371, 7, "1.31", ""),
    ("1", "NWP en-US*", 1360, 622, 2, "0.25", ""), ("1", "NWP pt-BR", 3600, 909, 3, "0.45", ""),
    ("1", "NWP en-IN", 1290, 170, 6, "1.14", ""), ("1", "NWP es-MX", 1980, 343, 5, "0.64", ""),
    ("1", "NWP es-AR", 640, 90, 5, "0.84", ""),
    ("2", "OTF de-DE", 1170, 206, 5, "0.89", "9.01"), ("2", "OTF en-GB", 1220, 206, 5, "0.89", "9.01"),
    ("2", "OTF es-ES", 1280, 197, 5, "0.89", "9.01"), ("2", "OTF fr-FR", 1300, 290, 4, "0.61", "7.31"),
    ("2", "OTF it-IT", 1360, 188, 5, "0.89", "9.01"), ("2", "OTF ru-RU", 870, 327, 3, "0.32", "5.13"),
    ("2", "OTF pt-PT", 430, 54, 7, "0.99", "9.56"),
)  # fmt: skip


def _xu() -> list[Row]:
    rows = []
    for table, name, rounds, mins, most, rho, epsilon in _XU:
        departs = ALONE if name == "NWP en-US*" else ""
        note = "a MinS of y - x instead of y - x - 1 would give 1.18" if name == "NWP en-IN" else ""
        shape = _shape(rounds, mins, most, 7.0)
        rows.append(Row(XU, table, name, "rho", rho, "tree", shape, note=note, departs=departs))
        if epsilon:
            rows.append(_of_printed(XU, table, name, epsilon, float(rho), "from the rounded rho"))
    note = "inputs of the notebook"
    rows.append(Row(XU, "1", "NWP es-ES, base model", "rho", "0.81", "tree", _shape(2000, 313, 6, 7.0), note=note))
    rows += [
        _of_printed(XU, "appendix C", f"rho {rho}", epsilon, rho) for rho, epsilon in ((0.25, "4.49"), (1.86, "13.69"))
    ]
    return rows


def _of_printed(source: str, table: str, name: str, epsilon: str, rho: float, note: str = "") -> Row:
    return Row(source, table, name, "epsilon", epsilon, "printed-rho", {"rho": rho, "delta": _DELTA}, note=note)


# Table 4: preset (or "tree", "columns"), noise multiplier, rounds, MinS, MaxP, zCDP, epsilon; both rounded up there.
_BLT_4 = (
    ("es-ES BLT-7.379", "min-sep-400", 7.379, 1280, 300, 4, "0.16", "3.46"),
    ("id-ID BLT-7.379", "min-sep-400", 7.379, 2350, 447, 5, "0.20", "3.93"),
    ("pt-BR BLT-8.681", "min-sep-1000", 8.681, 2000, 2001, 1, "2.23e-2", "1.25"),
    ("pt-BR BLT-16.1", "min-sep-1000", 16.1, 2000, 1181, 2, "1.40e-2", "0.98"),
    ("pt-PT BLT-3.12", "min-sep-100", 3.12, 430, 92, 4, "1.11", "10.19"),
    ("pt-PT BLT-5.5", "min-sep-100", 5.5, 320, 49, 6, "0.75", "8.19"),
    ("pt-BR BandMF-4.523", "unit-columns", 4.523, 2000, 2001, 1, "2.45e-2", "1.32"),
    ("id-ID TreeAgg-7", "tree", 7.0, 2350, 437, 5, "0.94", "9.29"),
    ("pt-PT TreeAgg-7", "tree", 7.0, 430, 91, 4, "1.33", "11.27"),
    ("es-ES BandMF-1.411", "unknown-strategy", 1.411, 1280, 296, 4, "0.29", "4.82"),
)
_BLT_4_DEPARTS = {
    "pt-PT TreeAgg-7": "three times what its own rounds, MinS and MaxP give at multiplier 7; about 4.03 would give it",
    "es-ES BandMF-1.411": "its strategy (400 bands at MinS 296, learning-rate cooldown) was never published",
}

_BLT_4_UP = {
    ("es-ES BLT-7.379", "rho"), ("id-ID BLT-7.379", "rho"), ("pt-BR BLT-16.1", "rho"), ("pt-PT BLT-5.5", "epsilon"),
    ("pt-BR BandMF-4.523", "rho"), ("pt-BR BandMF-4.523", "epsilon"), ("id-ID TreeAgg-7", "epsilon"),
}  # fmt: skip
_KINDS: dict[str, tuple[Recipe, str]] = {
    "tree": ("tree", ""),
    "unit-columns": ("unit-columns", ""),
    "unknown-strategy": ("unknown-strategy", ""),
}


def _blt_4() -> list[Row]:
    rows = []
    for name, kind, multiplier, rounds, mins, most, *printed in _BLT_4:
        recipe, preset = _KINDS.get(kind, ("blt", kind))
        inputs = {**_shape(rounds, mins, most, multiplier), "delta": _DELTA}
        quantities: tuple[Quantity, Quantity] = "rho", "epsilon"
        for quantity, number in zip(quantities, printed, strict=True):
            departs = UP if (name, quantity) in _BLT_4_UP else _BLT_4_DEPARTS.get(name, "")
            rows.append(Row(BLT, "4", name, quantity, number, recipe, inputs, departs=departs, preset=preset))
    return rows


# Table 3, for 2,052 rounds, min_sep 342 and 6 participations. MaxLoss comes first, whatever the heads say.
_RUN = {"rounds": 2052, "min_sep": 342, "max_participations": 6}
_BLT_3: tuple[tuple[str, Recipe, dict[str, int], str, str], ...] = (
    ("TreeAgg-Full", "tree-full", {}, "14.98", "12.47"),
    ("BLT nbuf=2, k=1", "blt-optimised", {"buffers": 2, "optimised_for": 1}, "11.80", "11.15"),
    ("BLT nbuf=5, k=1", "blt-optimised", {"buffers": 5, "optimised_for": 1}, "11.40", "10.87"),
    ("BLT* nbuf=2", "blt-optimised", {"buffers": 2, "optimised_for": 6}, "10.81", "9.34"),
    ("BLT* nbuf=3", "blt-optimised", {"buffers": 3, "optimised_for": 6}, "10.79", "9.33"),
    ("BLT* nbuf=4", "blt-optimised", {"buffers": 4, "optimised_for": 6}, "10.79", "9.33"),
    ("BLT* nbuf=5", "blt-optimised", {"buffers": 5, "optimised_for": 6}, "10.79", "9.33"),
    ("BandMF band=342", "banded-optimised", {"bands": 342}, "10.21", "8.60"),
)
_LOCAL = "the best of twelve starts has less MaxLoss and more RmsLoss; one start, of three buffers, ends as printed"


def _blt_3() -> list[Row]:
    rows = []
    for name, recipe, inputs, largest, rms in _BLT_3:
        departs, slow = (_LOCAL if largest == "10.79" else ""), recipe == "banded-optimised"
        row = Row(BLT, "3", name, "MaxLoss", largest, recipe, {**_RUN, **inputs}, slow, departs=departs)
        rows += [row, replace(row, quantity="RmsLoss", printed=rms)]
    return rows


# Table 1: devices, devices in a round, noise multiplier, epsilon after 1, 10, ... 1,000,000 rounds at delta K^-1.1.
_MCMAHAN_1 = (
    (1e5, 1e2, 1, "0.97 0.98 1.00 1.07 1.18 2.21 7.50"),
    (1e6, 1e1, 1, "0.68 0.69 0.69 0.69 0.69 0.72 0.73"),
    (1e6, 1e3, 1, "1.17 1.17 1.20 1.28 1.39 2.44 8.13"),
    (1e6, 1e4, 1, "1.73 1.92 2.08 3.06 8.49 32.38 187.01"),
    (1e6, 1e3, 3, "0.47 0.47 0.48 0.48 0.49 0.67 1.95"),
    (1e9, 1e3, 1, "0.84 0.84 0.84 0.85 0.88 0.88 0.88"),
)
# Table 2 and text, at noise multiplier 1 and delta 1e-9: place, devices, devices in a round, rounds, epsilon.
_MCMAHAN_2 = (
    ("2", 763_430, 5000, 5000, "4.634"), ("2", 763_430, 1667, 5000, "2.314"), ("2", 763_430, 1250, 5000, "2.038"),
    ("2", 1e8, 5000, 5000, "1.152"), ("2", 1e8, 1667, 5000, "0.991"), ("2", 1e8, 1250, 5000, "0.987"),
    ("appendix D", 763_430, 5000, 3000, "3.81"), ("appendix D", 763_430, 5000, 20_000, "8.92"),
    ("section 3", 763_430, 1250, 3000, "1.97"), ("section 3", 763_430, 5000, 5000, "4.6"),
)  # fmt: skip


def _mcmahan() -> list[Row]:
    rows = []
    for devices, drawn, multiplier, printed in _MCMAHAN_1:
        for power, epsilon in enumerate(printed.split()):
            name = f"K={devices:.0e} C={drawn:.0e} z={multiplier}, 1e{power} rounds"
            inputs = {"rate": drawn / devices, "noise_multiplier": multiplier, "rounds": 10**power}
            delta = {"delta": devices**-1.1}
            rows.append(Row(MCMAHAN, "1", name, "epsilon", epsilon, "moments-2018", inputs | delta))
    for table, devices, drawn, rounds, epsilon in _MCMAHAN_2:
        name = f"K={devices:g} C={drawn}, {rounds} rounds"
        inputs = {"rate": drawn / devices, "noise_multiplier": 1.0, "rounds": rounds, "delta": 1e-9}
        cut = CUT if epsilon in ("3.81", "1.97") else ""
        rows.append(Row(MCMAHAN, table, name, "epsilon", epsilon, "moments-2018", inputs, departs=cut))
    return rows


def _ramaswamy() -> list[Row]:
    note = "z taken against S; one device in another's place moves a sum by 2 S, and that would give hundreds"
    rows = []
    for millions, epsilon in ((2, "9.86"), (3, "6.73"), (4, "5.36"), (5, "4.54"), (10, "3.27")):
        population = millions * 1_000_000
        inputs = {"population": population, "report_goal": 20_000, "noise_multiplier": 0.8, "rounds": 2000}
        inputs |= {"delta": population**-1.1}
        name, departs = f"N={millions}M", (ALONE if epsilon == "4.54" else "")
        recipe: Recipe = "without-replacement-2020"
        rows.append(Row(RAMASWAMY, "5", name, "epsilon", epsilon, recipe, inputs, note=note, departs=departs))
    return rows


def _notebooks() -> list[Row]:
    grid = "printed in full, from a privacy loss distribution on a grid; ours by the exact curve"
    sums = "printed in full; the fifteenth digit differs"
    pt_br = {"rounds": 2000, "mins": 999, "max_participations": 2, "noise_multiplier": 8.35}
    return [
        Row(NOTEBOOK, "es-ES", "tree 2000/313/6", "rho", "0.81", "tree", _shape(2000, 313, 6, 7.0)),
        Row(
            NOTEBOOK, "es-ES", "tree 2000/313/6", "epsilon", "8.90", "renyi-of-rho",
            {**_shape(2000, 313, 6, 7.0), "delta": _DELTA},
            note="by Renyi orders; the exact curve gives 8.53",
        ),
        Row(
            NOTEBOOK, "matrices", "es-ES 484/3", "epsilon", "3.4240074094281336", "printed-rho",
            {"rho": 0.1506840301548885, "delta": _DELTA}, departs=grid,
        ),
        Row(
            NOTEBOOK, "matrices", "pt-BR 1428/2", "epsilon", "0.9935500950539097", "printed-rho",
            {"rho": 0.014342572340349278, "delta": _DELTA}, departs=grid,
        ),
        Row(NOTEBOOK, "matrices", "pt-BR 1428/2", "rho", "0.014342572340349278", "unit-columns", pt_br, departs=sums),
    ]  # fmt: skip


ROWS: tuple[Row, ...] = (*_xu(), *_notebooks(), *_blt_4(), *_blt_3(), *_ramaswamy(), *_mcmahan())


def _settings() -> dict[str, Mapping[str, Any]]:
    named = {name: {"kind": "blt", **vars(preset)} for name, preset in PRESETS.items()}
    for row in ROWS:
        if row.source not in (XU, BLT) or row.quantity != "rho" or row.recipe not in ("tree", "blt", "unit-columns"):
            continue
        shape = {name: int(row.inputs[name]) for name in ("rounds", "max_participations")}
        shape |= {"min_sep": int(row.inputs["mins"]) + 1}
        strategy: dict[str, Any] = {"kind": "tree"}
        if row.recipe == "blt":
            strategy = {"kind": "blt", "theta": PRESETS[row.preset].theta, "omega": PRESETS[row.preset].omega}
        elif row.recipe == "unit-columns":  # Its guarantee is the same for any number of bands that is allowed.
            strategy = {"kind": "banded", "bands": min(shape["min_sep"], shape["rounds"])}
        named[row.row] = {**strategy, "noise_multiplier": row.inputs["noise_multiplier"], **shape}
    return {name: MappingProxyType(fields) for name, fields in named.items()}


# Published settings as fields of a mechanism block: launches by the name of their row, and the parameters of BLTs
# that ran in production, whose noise is left open.
SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(_settings())
