"""Entry point of the ``tacit`` command and of ``python -m tacit``."""

import atexit
import gc
import resource

from pipeline.cli.app import app
from pipeline.ground import settings
from pipeline.telemetry.logs import be_patient
from tacit.alone import alone


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    alone()
    # The core of a killed process would hold text and keys. One byte and not 0, as Linux hands cores
    # of 0 bytes to a program that takes cores, such as systemd's (core(5)).
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (1 if most else 0, most))
    # A process that ends need not look for cycles: with torch and MLflow imported that takes a second.
    atexit.register(gc.freeze)
    be_patient()
    settings.let_threads_sleep()
    app(prog_name="tacit")


if __name__ == "__main__":
    main()
