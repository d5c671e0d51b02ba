"""Print which of the modules named on the command line say with ``--help`` not how they are run, or fail."""

import contextlib
import io
import runpy
import sys
import warnings


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names:
        sys.argv, shown = [name, "--help"], io.StringIO()
        try:
            with contextlib.redirect_stdout(shown):
                runpy.run_module(name, run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            right = not ended.code and f"python -m {name}" in shown.getvalue()
        else:
            right = False
        if not right:
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
