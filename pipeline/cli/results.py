"""``tacit audit`` and ``tacit ab``: show the results of a launch's audits and of its comparison."""

from collections.abc import Sequence
from typing import Annotated

import typer

from pipeline.cli.support import AsJson, LaunchName, answer, command, open_existing


@command
def audit(launch: LaunchName, as_json: AsJson = False) -> None:
    """Show the audit results of a launch: canaries of each population, and the audits of the noise.

    Rank 1 among the random continuations means memorised, the middle means unknown; exposure above its
    ceiling contradicts the guarantee. 'tacit stage audit' runs the audits.

    Example: tacit audit demo-en-US-0123abcd
    """
    audited = open_existing(launch)[1].result("audit")
    answer(audited, as_json, text=audit_text(audited))


def audit_text(audited: dict) -> str:
    """Format the result of stage ``audit``: canaries of each population, and the verdicts on the noise."""
    lines = [f"canaries among {audited['random_continuations']:,} random continuations"]
    for population in dict.fromkeys(row["population"] for row in audited["canaries"]):
        about = {"compliant": "obey the timer like any device", "stress": "always available, under no guarantee"}
        held = audited.get("in_launch")
        where = "in the launched model" if held is None or population in held else "on a twin that never ships"
        lines += ["", f"{population}: {about[population]}; {where}"]
        lines.append(f"{'devices':>8} {'copies':>7} {'rounds':>7} {'rank':>10} {'exposure':>9} {'ceiling':>12}  found")
        random = audited["random_continuations"]
        lines += [_canary(row, random) for row in audited["canaries"] if row["population"] == population]
    worst = audited["worst_rank_single_user"]
    lines += ["", f"worst rank of a compliant canary on one device: {'none' if worst is None else f'{worst:,}'}"]
    lines += [
        f"control without noise, {row['n_e']} copies: {row['found']} of {row['canaries']} found"
        for row in (audited.get("control") or {"rows": ()})["rows"]
    ]
    lines += ["", f"{'audit':<16} {'verdict':<8} {'noise <':>8} {'clip >':>8}  test"]
    for row in audited["audits"]:
        least = " ".join(
            f"{'' if row[name] is None else format(row[name], '.3f'):>8}" for name in ("least_noise", "least_clip")
        )
        lines.append(f"{row['type']:<16} {row['verdict']:<8} {least}  {row['tested']}")
    return "\n".join(lines)


@command
def ab(
    launch: LaunchName,
    feature: Annotated[str | None, typer.Option(help="NWP, SC or OTF; without it the launch's main one")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the arms of a launch on held-out devices.

    It prints the metrics of one feature for every arm, with intervals, a dash where nobody typed; then, for each pair,
    whether the candidate is shown not to be inferior. 'tacit stage ab_test' makes the comparison, with every number in
    its comparison.json.

    Example: tacit ab demo-en-US-0123abcd --feature OTF
    """
    config, run, _ = open_existing(launch)
    compared = run.result("ab_test")
    answer(compared, as_json, text=comparison_text(compared, config.features, feature))


def comparison_text(compared: dict, features: Sequence[str], feature: str | None = None) -> str:
    """Format the result of stage ``ab_test`` for one feature: the metrics of every arm, and the verdicts.

    Args:
      features: of the launch, the main one first.
      feature: NWP, SC or OTF; None for the main one.

    Raises:
      ValueError: there is no such feature.
    """
    from pipeline.launch.config import FEATURES
    from pretrain.reading.paths import shown

    wanted = feature or features[0]
    if wanted not in FEATURES:
        raise ValueError(f"feature: {shown(wanted)} does not exist; choose one of {', '.join(FEATURES)}")
    from reports.formats import confidence  # with the disclosure's blocks, slow to import

    metrics = ["top1_recall", "top3_recall", *compared["features"][wanted]]
    arms = list(compared["top1_recall"])
    values = {(row["arm"], row["metric"]): row for row in compared["arms"]}
    lines = [
        f"{wanted}: {compared['words']:,} words of {compared['devices_at_least']}+ devices, "
        f"{compared['judged_words']:,} typed again; {confidence(compared['confidence'])} intervals",
        "",
        f"{'arm':<18}" + "".join(f"{metric:>24}" for metric in metrics),
    ]
    lines += [f"{arm:<18}" + "".join(f"{_value(values.get((arm, metric))):>24}" for metric in metrics) for arm in arms]
    about = compared.get("others", {}).get(wanted, compared)
    champion = about["champion"]
    lines += ["", "champion: " + (_named(champion) if champion else "none, nothing was published before this launch")]
    if compared["simulation_without_privacy"]:
        lines.append("non_private: trained without noise, which only a simulation may do; the model was deleted")
    lines += [
        "",
        f"attempt {about.get('attempt', 0) or 'not counted'}; not inferior, within a margin of the primary metric:",
    ]
    # A feature outside the launch has no verdict; the main feature's is shown.
    judged = wanted if wanted in features else features[0]
    for row in (row for row in compared["verdicts"] if row.get("feature", "") in ("", judged)):
        margin = row.get("margin") or compared.get("margin")
        within = "" if margin is None else f" within {margin:.2%}"
        against = row["failed"] + [f"no interval for {metric}" for metric in row["missing"]]
        said = "yes" if row["passes"] else f"not shown: {', '.join(against)}"
        lines.append(f"  {row['candidate']} minus {row['baseline']}{within}: {said}")
    return "\n".join(lines)


def _canary(row: dict, random: int) -> str:
    from reports.formats import bits_allowed

    searched = {"found_by_beam": "beam search", "found_by_best_first": "exact search"}
    by = ", ".join(name for key, name in searched.items() if row[key]) or "no"
    joined = "" if row["participations"] is None else row["participations"]
    place = f"{row['n_u']:>8} {row['n_e']:>7} {joined:>7} {row['rank']:>10,}"
    return f"{place} {row['exposure_bits']:>9.2f} {bits_allowed(row['ceiling_bits'], random):>12}  {by}"


def _value(row: dict | None) -> str:
    """Value and half of its interval; a dash for an arm under which nothing was typed."""
    if row is None:
        return "–"
    scale, unit = (1, "") if row["metric"] == "words_per_minute" else (100, "%")
    return f"{scale * row['value']:.2f}{unit} ± {scale * (row['high'] - row['low']) / 2:.2f}"


def _named(champion: dict) -> str:
    return f"version {champion['version']} of {champion['registered_model']}, launch {champion['launch_id']}"
