"""`tacit` as a module, for a process that forked off (``forked.py``)."""

from pipeline.cli.app import main

if __name__ == "__main__":
    main()
