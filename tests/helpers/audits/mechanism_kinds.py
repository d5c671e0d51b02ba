"""The mechanism block of every kind of run, for launches on the small model."""

from pydantic import TypeAdapter

from federated.config.blt_presets import PRESETS
from federated.config.mechanism import MechanismConfig
from tests.helpers.launches.small_run import DEVICES, SYNTHETIC

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
