"""A small run that kills itself: `python -m ... DIRECTORY ROUND OUT`; if it lives, OUT holds what it comes to."""

import os
import pickle
import signal
import sys
from pathlib import Path

from tests.helpers.launches.small_run import Launch, run


def main(directory: Path, kill_at: int, out: Path) -> None:
    def on_round(message: dict) -> None:
        if message["round"] == kill_at:
            # No handler runs, nothing is flushed.
            os.kill(os.getpid(), signal.SIGKILL)

    out.write_bytes(pickle.dumps(run(Launch(), directory, on_round)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
