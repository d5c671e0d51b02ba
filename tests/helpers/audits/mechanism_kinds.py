"""The mechanism block of every kind of run, for launches on the small model."""

from dataclasses import replace

from pydantic import TypeAdapter

from federated.config.blt_presets import PRESETS
from federated.config.mechanism import MechanismConfig
from tests.helpers.launches.small_run import DEVICES, SYNTHETIC, Launch

BASE = {"noise_multiplier": 0.5, "clip_norm": 0.2, "rounds": 9, "report_goal": 6, "delta": 1e-5, "randomness": "seeded"}
SPACED = BASE | {"min_sep": 3, "max_participations": 2}
DRAWN = BASE | {"kind": "independent", "population": DEVICES - SYNTHETIC}
ADAPTIVE = {"target_quantile": 0.5, "learning_rate": 0.2, "bit_noise_std": 1.0}
BLT = {"kind": "blt", "theta": PRESETS["min-sep-100"].theta, "omega": PRESETS["min-sep-100"].omega}
KINDS = {
    "tree": SPACED | {"kind": "tree"},
    "tree, adaptive": SPACED | {"kind": "tree", "restarts": [3, 5], "adaptive_clipping": ADAPTIVE},
    "tree, per layer": SPACED | {"kind": "tree", "clipping": "per-layer"},
    "blt": SPACED | BLT,
    "blt, adaptive": SPACED | BLT | {"restarts": [4], "adaptive_clipping": ADAPTIVE},
    "blt, by the clock": SPACED | BLT | {"availability": {"timer_days": 1}},
    "banded": SPACED | {"kind": "banded", "bands": 3},
    "tree, secagg": SPACED | {"kind": "tree", "secagg": {"bits": 32}},
    "poisson, secagg": DRAWN | {"sampling": "poisson", "secagg": {"bits": 24}},
    "poisson": DRAWN | {"sampling": "poisson"},
    "fixed": DRAWN | {"sampling": "fixed"},
    "clipped estimator": DRAWN | {"sampling": "poisson", "estimator": "clipped", "weight_words": 6},
    "poisson, adaptive": DRAWN | {"sampling": "poisson", "adaptive_clipping": ADAPTIVE},
}
PARSER = TypeAdapter(MechanismConfig)

CLIPPED = DRAWN | {"sampling": "poisson", "estimator": "clipped"}
# Bits that take most of the noise: there a bit that moves too far costs most.
QUIET_BITS = ADAPTIVE | {"bit_noise_std": 0.3}
QUIETEST = "tree, adaptive, quiet bits"
EVERY_KIND = KINDS | {
    QUIETEST: KINDS["tree, adaptive"] | {"adaptive_clipping": QUIET_BITS},
    "tree, adaptive, secagg": KINDS["tree, adaptive"] | {"adaptive_clipping": QUIET_BITS, "secagg": {"bits": 24}},
    "tree, adaptive, per layer": KINDS["tree, adaptive"] | {"clipping": "per-layer"},
    "tree, secagg, who checks in": KINDS["tree, secagg"] | {"availability": {"round_minutes": 30}},
    "tree, adaptive, who checks in": KINDS["tree, adaptive"] | {"availability": {"round_minutes": 30}},
    "poisson, per layer": KINDS["poisson"] | {"clipping": "per-layer"},
    "fixed, adaptive": DRAWN | {"sampling": "fixed", "adaptive_clipping": QUIET_BITS},
    "clipped estimator, adaptive": CLIPPED | {"weight_words": 6, "adaptive_clipping": QUIET_BITS},
    "clipped estimator, alike": CLIPPED,
    "fixed, weighted": DRAWN | {"sampling": "fixed", "weight_words": 6},
    # Small cohorts, some of which are too small to hide in and send nothing.
    "poisson, secagg, few": DRAWN | {"sampling": "poisson", "secagg": {"bits": 24}, "report_goal": 3},
}


def launch_of(kind: str) -> Launch:
    """A short run of a mechanism on the small model, whose updates are longer than the clip norm.

    Devices train one by one, as a device's low bits may depend on those that are trained side by side with it.
    """
    short = {"rounds": 5, "clip_norm": 0.05} | ({"restarts": [2]} if "restarts" in EVERY_KIND[kind] else {})
    launch = Launch(mechanism=PARSER.validate_python(EVERY_KIND[kind] | short))
    return replace(launch, runtime=launch.runtime.model_copy(update={"chunk_devices": 1}))
