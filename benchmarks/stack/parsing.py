"""CPU time in which Airflow's dag-processor reads the DAG files of fifty launch files, as it does again and again.

    .venv/airflow/bin/python -m benchmarks.stack.parsing [--locales 50]

Each DAG file is parsed and serialised by the processor's own function, in a process that has imported Airflow, as the
processor's children have. Medians of three; the last line is one round over all DAG files.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("launch.py", "public_model.py", "experiment.py", "expiry.py")
_CHILD = """
import sys, time
from pathlib import Path
import structlog
import airflow.providers.standard.operators.hitl
from airflow.dag_processing.processor import DagFileParseRequest, _parse_file
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
request = DagFileParseRequest(file=str(folder / sys.argv[2]), bundle_path=folder, bundle_name="dags-folder")
began = time.process_time()
result = _parse_file(request, structlog.get_logger())
spent = time.process_time() - began
assert not result.import_errors, result.import_errors
print("parsed", len(result.serialized_dags), spent)
"""


def copies(folder: Path, locales: int) -> None:
    """Launch files of production, each under several names."""
    sources = sorted((ROOT / "dags" / "launches").glob("??-??.yaml"))
    for number in range(locales):
        source = sources[number % len(sources)]
        (folder / f"{source.stem}-{number}.yaml").write_bytes(source.read_bytes())


def parsed(name: str, folder: str) -> tuple[int, float]:
    """DAGs of a file over a folder of launch files, and the CPU seconds of parsing it."""
    variables = [f"TACIT_LAUNCHES={folder}", f"AIRFLOW_HOME={folder}/airflow", "AIRFLOW__CORE__LOAD_EXAMPLES=False"]
    command = ["env", *variables, sys.executable, "-c", _CHILD, str(ROOT / "dags"), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("parsed ")]
    _, dags, seconds = line.split()
    return int(dags), float(seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locales", type=int, default=50)
    options = parser.parse_args()
    total = 0.0
    with tempfile.TemporaryDirectory() as folder:
        copies(Path(folder), options.locales)
        for name in FILES:
            turns = [parsed(name, folder) for _ in range(3)]
            median = statistics.median(seconds for _, seconds in turns)
            total += median
            print(f"{name:<20}{turns[0][0]:>4} DAGs{median:>8.2f} CPU s", flush=True)
    print(f"{'all':<29}{total:>8.2f} CPU s")


if __name__ == "__main__":
    main()
