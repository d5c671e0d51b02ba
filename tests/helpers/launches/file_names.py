"""Names that a launch file may have and may not have, for ``init``, ``check`` and Airflow alike."""

NAMES = ("en_US.v2-b.yaml", "7.yaml", f"{'l' * 64}.yaml")
NO_NAMES = ("timed.yml", "timed.YAML", "_timed.yaml", "-timed.yaml", "a name.yaml", f"{'l' * 65}.yaml")
# Of a file manager, of an editor, and of somebody who hides it: nothing reads them.
EDITORS = ("._good.yaml", ".#good.yaml", ".timed.yaml")
