"""A population played by fewer people: the rule that holds noise against signal.

Symbols as in ``costs``: T rounds, b ``min_sep``, k ``max_participations``, m ``report_goal``, z noise multiplier;
N devices that train, n pseudo-users.

With N pseudo-users and no more rounds than a simulation may have, nothing is scaled. Else:

- rounds: ``T' = min(T, most rounds)``; separation ``b' = min(b, T')``, so that a person returns as often;
- report goal: ``m' = min(m, n // b', most goal)``, as many as are rested;
- gradients: z' such that ``z' RmsErr(C', T') / m' = z RmsErr(C, T) / m``: as much noise in the model, in clip norms
  of the mean update, as the launch has;
- counts: ``z' = z n / N``: sums are n / N as large, and so is their noise.

A scaled result extrapolates. Fewer people in a round make the mean update itself noisier, fewer rounds learn less
while the noise is that of all, and fewer people know fewer words: all three make a rehearsal poorer than the launch.
That n people's text is N people's is assumed.
"""

from federated.config.mechanism import MechanismConfig, TreeMechanism
from federated.config.planning import SmallTrade
from federated.planning import costs as plan_costs


def scaled(mechanism: MechanismConfig, users: int, limits: SmallTrade) -> MechanismConfig:
    """The mechanism of a simulation by so many pseudo-users, at the launch's own noise-to-signal ratio.

    Independent noise is played by a tree of that ratio; secure aggregation and availability are left out. Adaptive
    clipping stays where all rounds are played: its restarts belong to them.

    Raises:
      ValueError: no pseudo-users.
    """
    if users < 1:
        raise ValueError(f"users: {users}; the public text must make a pseudo-user or more")
    ratio = plan_costs.noise_to_signal(mechanism)
    rounds = min(mechanism.rounds, limits.most_rounds)
    min_sep = min(mechanism.min_sep, rounds, users)
    goal = min(mechanism.report_goal, users // min_sep, limits.most_goal)
    shape = {
        "rounds": rounds,
        "report_goal": goal,
        "min_sep": min_sep,
        "max_participations": min(mechanism.max_participations, plan_costs.most_participations(rounds, min_sep)),
    }
    at_one = _at_one(mechanism, shape)
    multiplier = ratio / plan_costs.noise_to_signal(at_one)
    if at_one.adaptive_clipping is None:
        return at_one.model_copy(update={"noise_multiplier": multiplier})
    # Noise of the bits, and that of the updates that shares with it, shrink alike.
    bits = at_one.adaptive_clipping.bit_noise_std * multiplier / mechanism.noise_multiplier
    adaptive = at_one.adaptive_clipping.model_copy(update={"bit_noise_std": bits})
    return at_one.model_copy(update={"noise_multiplier": multiplier, "adaptive_clipping": adaptive})


def scaled_counts(noise_multiplier: float, users: int, devices: int) -> float:
    """Noise multiplier of counts of so many pseudo-users that disturbs them as the launch's are disturbed."""
    return noise_multiplier * min(users / devices, 1.0)


def notes(mechanism: MechanismConfig, users: int, devices: int, limits: SmallTrade) -> tuple[str, ...]:
    """What was scaled, for people; () if nothing was."""
    played = scaled(mechanism, users, limits)
    if users == devices and (played.rounds, played.report_goal) == (mechanism.rounds, mechanism.report_goal):
        return ()
    return (
        f"Scaled: {users:,} pseudo-users play {devices:,} devices that train, {played.rounds:,} rounds of "
        f"{played.report_goal:,} play {mechanism.rounds:,} of {mechanism.report_goal:,}, at the launch's own "
        "noise-to-signal ratio. The result extrapolates; the launch has more text and more rounds to learn from.",
    )


def _at_one(mechanism: MechanismConfig, shape: dict[str, int]) -> MechanismConfig:
    """The mechanism in another shape, at a noise multiplier of 1."""
    rounds, min_sep = shape["rounds"], shape["min_sep"]
    if mechanism.kind == "independent":
        block = mechanism.model_dump(include={"clip_norm", "delta", "clipping"})
        return TreeMechanism(kind="tree", noise_multiplier=1.0, randomness="seeded", **shape, **block)
    changes: dict[str, object] = {"noise_multiplier": 1.0, "secagg": None, "availability": None}
    changes |= {"randomness": "seeded", **shape}
    if mechanism.kind == "banded":
        changes["bands"] = min(mechanism.bands, min_sep)
    elif rounds < mechanism.rounds:
        changes |= {"restarts": tuple(at for at in mechanism.restarts if at < rounds), "adaptive_clipping": None}
    return mechanism.model_copy(update=changes)
