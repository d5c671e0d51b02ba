"""Whoever asks what a mechanism costs does not wait for torch."""

import pkgutil
import subprocess
import sys

import pytest

from federated import accounting, mechanisms


@pytest.mark.slow
def test_mechanisms_and_accountants_do_not_import_torch() -> None:
    packages = [(package.__name__, package.__path__) for package in (accounting, mechanisms)]
    names = [f"{name}.{module.name}" for name, path in packages for module in pkgutil.iter_modules(path)]
    heavy = "{name.split('.')[0] for name in sys.modules} & {'torch', 'pyarrow', 'numba', 'mlflow'}"
    code = f"import sys, {', '.join(names)}; print(sorted({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
