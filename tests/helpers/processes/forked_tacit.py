"""`tacit` as a module, for a process that forked off (``forked.py``)."""

import sys

from pipeline.cli.app import main

if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        # A gang's workers meet seconds after its port was chosen, by when the system may have given it to another test.
        from pipeline.hosts import agent
        from tests.helpers.processes.ports import free_port

        agent.free_port = free_port
    main()
