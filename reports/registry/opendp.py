"""A launch as a record for OpenDP's registry of deployments: a draft in YAML, by the registry's schema of one day.

The registry (github.com/opendp/deployments-registry-data) checks records by a schema that changes without a version,
so the day and commit that this adapter was written for stand here, in each record, and in the name of
``opendp-DAY.schema.json``: the fields and closed lists of that schema in words of our own. Whoever takes the adapter to
another day writes that file anew beside the template.
"""

import re

from reports.disclosure.document import Disclosure

VERSION, COMMIT = "2026-07-15", "3e9c812a924cf01d228f26f6c462c59c391c3f2a"
FILE = "opendp_registry.yaml"  # the registry wants small letters, digits and underscores


def deployed(disclosure: Disclosure) -> bool:
    """Whether a launch is a deployment: it was let go, and its guarantee is one."""
    return disclosure.decision.decision == "launch" and not disclosure.launch.void


def values(disclosure: Disclosure) -> dict[str, object]:
    """What the template needs beside filters."""
    slug = re.sub(r"[^a-z0-9]+", "-", disclosure.launch.id.lower()).strip("-")
    return {"d": disclosure, "version": VERSION, "commit": COMMIT, "slug": slug}
