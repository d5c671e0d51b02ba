"""The next version of tacit, for the rehearsal of an update: this one, whose ledger has one migration more.

python -m benchmarks.stack.newer MIGRATIONS ARGUMENTS...

MIGRATIONS is the folder of the migrations; the other arguments are those of `tacit`.
"""

import sys
from pathlib import Path

from pipeline.ledger.migrations import versioning
from tacit.__main__ import main

if __name__ == "__main__":
    if sys.argv[1:] == ["--help"]:
        print(__doc__)
        sys.exit(0)
    versioning.__file__ = str(Path(sys.argv.pop(1)) / "versioning.py")
    versioning.REVISIONS = ("1", "2")
    main()
