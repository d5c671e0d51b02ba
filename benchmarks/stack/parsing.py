"""CPU time in which Airflow's dag-processor reads the DAG files of fifty launch files, as it does again and again.

    .venv/airflow/bin/python -m benchmarks.stack.parsing [--locales 50]

Each DAG file is parsed and serialised by the processor's own function, in a process that has imported what the
processor has: itself, and what the DAG files import of Airflow. A loop of ten million additions before and after it, in
the same process, says how fast the machine was: *quiet* is what the file takes where that loop takes 0.7 CPU seconds.
Medians of three; the last line is one round over all DAG files.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("launch.py", "public_model.py", "experiment.py", "expiry.py")
# CPU seconds of the child's loop on a quiet machine of the kind that docs/scaling.md states.
QUIET = 0.7
_CHILD = """
import sys, time
from pathlib import Path
import structlog
import airflow.dag_processing.manager
from airflow.dag_processing.processor import DagFileParseRequest, _parse_file, _pre_import_airflow_modules
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder))
for name in sys.argv[3:]:
    _pre_import_airflow_modules(str(folder / name), structlog.get_logger())
request = DagFileParseRequest(file=str(folder / sys.argv[2]), bundle_path=folder, bundle_name="dags-folder")
LOOP = "total = 0\\nfor number in range(10_000_000):\\n    total += number"
loop = compile(LOOP, "loop", "exec")
times = [time.process_time()]
exec(loop)
times.append(time.process_time())
result = _parse_file(request, structlog.get_logger())
times.append(time.process_time())
exec(loop)
times.append(time.process_time())
assert not result.import_errors, result.import_errors
before, spent, after = (end - begun for begun, end in zip(times, times[1:]))
print("parsed", len(result.serialized_dags), spent, (before + after) / 2)
"""


def copies(folder: Path, locales: int) -> None:
    """Launch files of production, each under several names."""
    sources = sorted((ROOT / "dags" / "launches").glob("??-??.yaml"))
    for number in range(locales):
        source = sources[number % len(sources)]
        (folder / f"{source.stem}-{number}.yaml").write_bytes(source.read_bytes())


def parsed(name: str, folder: str) -> tuple[int, float, float]:
    """DAGs of a file over a folder of launch files, and the CPU seconds of parsing it, here and on a quiet machine."""
    variables = [f"TACIT_LAUNCHES={folder}", f"AIRFLOW_HOME={folder}/airflow", "AIRFLOW__CORE__LOAD_EXAMPLES=False"]
    command = ["env", *variables, sys.executable, "-c", _CHILD, str(ROOT / "dags"), name, *FILES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("parsed ")]
    _, dags, seconds, loop = line.split()
    return int(dags), float(seconds), float(seconds) * QUIET / float(loop)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--locales", type=int, default=50)
    options = parser.parse_args()
    every = list[tuple[float, float]]()
    with tempfile.TemporaryDirectory() as folder:
        copies(Path(folder), options.locales)
        for name in FILES:
            turns = [parsed(name, folder) for _ in range(3)]
            here, quiet = (statistics.median(turn[column] for turn in turns) for column in (1, 2))
            every.append((here, quiet))
            print(f"{name:<20}{turns[0][0]:>4} DAGs{here:>8.2f} CPU s{quiet:>8.2f} quiet", flush=True)
    here, quiet = map(sum, zip(*every, strict=True))
    print(f"{'all':<29}{here:>8.2f} CPU s{quiet:>8.2f} quiet")


if __name__ == "__main__":
    main()
