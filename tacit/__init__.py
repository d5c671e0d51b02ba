"""Launch private keyboard language models: the functions behind the commands, for Python.

Every function takes a path, a data frame or a mechanism in one line, and returns a value that prints; most also plot
and become data frames. A function is imported when it is first used, so ``import tacit`` takes milliseconds.

Calls on people's data go through a launch file: they need a registered population and the privacy ledger, so that
nothing is released twice. Calls on a data frame are simulations: their noise is seeded and protects nobody.
"""

from typing import TYPE_CHECKING, Any

from tacit.alone import alone

if TYPE_CHECKING:
    __version__: str
    from tacit.accounting import Account, Strategy, account, optimize
    from tacit.answers import Answer, Plot
    from tacit.launches import (
        Audit,
        Comparison,
        LaunchEnding,
        Plan,
        audit,
        check,
        compare,
        launch,
        plan,
        predict,
        verify,
    )
    from tacit.training import Discovery, Training, discover, fine_tune

__all__ = [
    "Account",
    "Answer",
    "Audit",
    "Comparison",
    "Discovery",
    "LaunchEnding",
    "Plan",
    "Plot",
    "Strategy",
    "Training",
    "__version__",
    "account",
    "audit",
    "check",
    "compare",
    "discover",
    "fine_tune",
    "launch",
    "optimize",
    "plan",
    "predict",
    "verify",
]
alone()
_MODULES = ("tacit.accounting", "tacit.launches", "tacit.training", "tacit.answers")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tacit-keyboard")
    if name not in __all__:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    from importlib import import_module

    return next(getattr(module, name) for module in map(import_module, _MODULES) if hasattr(module, name))


def __dir__() -> list[str]:
    return __all__
