"""Who asks what a mechanism costs does not wait for torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from federated import accounting


@pytest.mark.slow
def test_the_accountants_do_not_import_torch() -> None:
    names = [path.stem for path in Path(next(iter(accounting.__path__))).glob("*.py") if path.stem != "__init__"]
    imports = "; ".join(f"import federated.accounting.{name}" for name in sorted(names))
    heavy = "{name.split('.')[0] for name in sys.modules} & {'torch', 'pyarrow', 'numba', 'mlflow'}"
    code = f"import sys; {imports}; print(sorted({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
