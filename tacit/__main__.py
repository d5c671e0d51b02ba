"""Entry point of the ``tacit`` command and of ``python -m tacit``."""

import resource

from pipeline.cli.app import app
from pipeline.ground import settings
from pipeline.telemetry.logs import be_patient


def main() -> None:
    """Run the command that the process was started with, and exit with its code."""
    # The core of a killed process would hold text and keys.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    be_patient()
    settings.let_threads_sleep()
    app(prog_name="tacit")


if __name__ == "__main__":
    main()
