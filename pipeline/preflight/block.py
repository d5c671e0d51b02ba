"""A mechanism block, from a launch file, a published setting or the command line, and its guarantee."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from federated import mechanisms
from federated.accounting import guarantees
from federated.accounting.guarantees import Guarantee
from federated.accounting.published_rows import SETTINGS
from federated.config.mechanism import MechanismConfig
from federated.mechanisms import mechanism_file
from pipeline.launch import config_errors
from pipeline.launch.config import load_launch
from pipeline.preflight.devices import stated_devices
from pipeline.releases.terms import Terms
from pipeline.releases.total import totals
from pipeline.releases.training import TRAINING
from pretrain.config import Config
from pretrain.reading import paths, yaml_text
from pretrain.reading.paths import shown
from reports.disclosure.total import Total

# Required fields that do not affect a guarantee (except the sampling rate of independent noise), and the delta of the
# published launches.
_SUPPLIED = {"clip_norm": 1.0, "report_goal": 1, "delta": 1e-10, "randomness": "secure"}
_EXAMPLE = "as in 'kind: tree, noise_multiplier: 7, rounds: 1280, min_sep: 181, max_participations: 5'"


class _Block(Config):
    """Wrapper of a mechanism block, so that errors name its fields as in a launch file."""

    mechanism: MechanismConfig


def guarantee(
    config: MechanismConfig, deltas: tuple[float, ...] = (), strategy: Path | None = None, *, twice: bool = False
) -> Guarantee:
    """Compute the guarantee of a block at its enforced limits.

    Args:
      deltas: deltas at which to state epsilon; empty for the block's own.
      strategy: the mechanism file of a plan, instead of a new search for a strategy.
      twice: also run the second accountant.

    Raises:
      ValueError: the strategy belongs to another block, or as ``guarantees.account``.
    """
    found = None
    if strategy is not None:
        hint = "give the mechanism.json that stage plan of a launch wrote"
        found = mechanism_file.load(paths.require_file(strategy, "strategy", hint))
        if not mechanisms.fits(config, found):
            raise ValueError(
                f"strategy: {shown(strategy)} is not of this mechanism; give the block of the launch that planned it"
            )
    return guarantees.account(config, deltas, found, twice=twice)


def of_file(
    launch: str,
    changes: Sequence[str] = (),
    deltas: tuple[float, ...] = (),
    strategy: Path | None = None,
    *,
    twice: bool = False,
) -> tuple[Guarantee, dict[float, Total]]:
    """Compute the guarantee of a launch file's training, and the loss of one device to all its releases, by delta.

    Devices are those that the file states; without a number, words found locally have their local bound.

    Args:
      changes, deltas, strategy, twice: of the mechanism, as ``block`` and ``guarantee`` take them.

    Raises:
      ValueError: as ``block`` and ``guarantee``, or a field is changed of a mechanism that trains nothing.
    """
    config = load_launch(Path(launch))
    if TRAINING.asked(config):
        changed = block(launch, changes=changes)
        trained = guarantee(changed, deltas, strategy, twice=twice)
        config = config.model_copy(update={"mechanism": changed})
    elif changes:
        raise ValueError(f"set: {shown(launch)} trains nothing on devices, so a field of its mechanism changes no loss")
    else:
        trained = guarantees.untrained(deltas or (config.mechanism.delta,))
    devices = stated_devices(config)
    terms = Terms.of(config, trained.rho, None if devices is None else config.private_text.splits.expected(devices))
    return trained, totals(config, terms.likely(terms.spends), trained.epsilon)


def block(
    launch: str | None = None, mechanism: str | None = None, preset: str | None = None, changes: Sequence[str] = ()
) -> MechanismConfig:
    """Return the block of a launch file, or a preset updated by a block, with single fields changed.

    Args:
      mechanism: YAML, or the path of a file with it.
      changes: as ``FIELD=VALUE``.

    Raises:
      ValueError: no source is given, or the block is invalid.
    """
    fields: dict[str, object] = {}
    if launch is not None:
        fields = load_launch(Path(launch)).mechanism.model_dump(mode="json", exclude_unset=True)
    elif mechanism is None and preset is None:
        raise ValueError("account: no mechanism; name a launch file, or give --mechanism, --preset or --paper")
    if preset is not None:
        fields |= _published(preset)
    if mechanism is not None:
        fields |= _read(mechanism)
    for change in changes:
        name, separator, value = change.partition("=")
        if not (name and separator):
            raise ValueError(f"set: got {shown(repr(change))}; write it as FIELD=VALUE, as in noise_multiplier=7")
        fields[name] = yaml_text.load(value, f"set {shown(name)}")
    supplied = {name: value for name, value in _SUPPLIED.items() if name not in fields}
    if fields.get("kind") == "independent":
        supplied.pop("report_goal", None)
    try:
        return _Block.model_validate({"mechanism": supplied | fields}).mechanism
    except ValidationError as error:
        raise ValueError("\n".join(config_errors.lines(error, _Block))) from error


def _published(name: str) -> Mapping[str, object]:
    if name not in SETTINGS:
        raise ValueError(f"preset: {shown(repr(name))} does not exist; choose one of {', '.join(SETTINGS)}")
    return SETTINGS[name]


def _inline(block: str) -> object:
    """Parse the YAML of a block; its outer braces are optional."""
    try:
        return yaml_text.load(block if block.lstrip().startswith("{") else f"{{{block}}}", "mechanism")
    except ValueError:
        if "\n" not in block:
            raise
        return yaml_text.load(block, "mechanism")


def _read(block: str) -> dict[str, object]:
    """Read the fields of a block: from YAML if it contains a colon, else from a file."""
    if ":" in block:
        fields = _inline(block)
    else:
        text = paths.read_text(
            Path(block),
            "mechanism",
            f"give a file with a mechanism block, or the block itself, {_EXAMPLE}",
            yaml_text.MOST_BYTES,
        )
        fields = yaml_text.load(text, shown(block))
    if not isinstance(fields, dict):
        raise ValueError(f"mechanism: got {shown(repr(fields))}; a block is a mapping of fields, {_EXAMPLE}")
    if isinstance(fields.get("mechanism"), dict):
        raise ValueError(
            f"mechanism: {shown(block)} holds more than the fields of a mechanism block; name a launch file without "
            "--mechanism, or give the lines below 'mechanism:' alone"
        )
    return fields
