"""Local word discovery: the privacy loss of messages that each device randomises itself."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discovery.config import TrieConfig
from evaluation.audit.verdict import Verdict
from pipeline.launch.config import LaunchConfig
from pipeline.ledger.entries import Spend
from pipeline.releases.release import Outlook, Release
from pipeline.run.stage import StageContext
from reports.disclosure.releases import DiscoveryGuarantee, LocalWords
from reports.disclosure.total import Total

if TYPE_CHECKING:
    from evaluation.audit.released.local_words import Layer, Rule

_HIDDEN = {
    "shuffled": "a shuffler for the messages of word discovery: no message can be linked to its sender, or to another "
    "of the same sender",
    "summed": "secure aggregation of the votes of word discovery: no party sees one device's votes",
}
_LOCAL = (
    "Word discovery trusts no party: the total uses the local guarantee of all messages of a device, which holds "
    "against any collector of them. With as few devices as a layer has, shuffling would certify no lower loss."
)
_OUTPUT = {
    "local": "every message of word discovery, and the discovered words",
    "shuffled": "the shuffled messages of word discovery, and the discovered words",
    "summed": "the sums of votes of word discovery, and the discovered words",
}
_KEPT = "layers"
# What the search for a device's epsilon may add above the smallest, with a margin.
_SEARCHED = 1.01
_STATED = tuple(DiscoveryGuarantee.model_fields)


def local_discovery(epsilon0: float, messages: int, certified: float, delta: float, note: str) -> Spend:
    """Spend of a local discovery: of one typed word, and of all messages of a device.

    Guarantee: item-level epsilon0-LDP; a device that sends ``messages`` loses ``messages * epsilon0`` against any
    collector of them, or ``certified`` at ``delta`` where that is less, under the assumptions of the certificate
    (``discovery.certificates.group``). Swap adjacency covers zero-out: a device that typed nothing sends as many
    messages that name no word.

    Args:
      certified: epsilon of all messages of a device at ``delta``.
    """
    local = messages * epsilon0
    shuffled = certified < local
    return Spend(
        unit="item",
        adjacency="swap",
        rho=None,
        epsilon=epsilon0,
        delta=0.0,
        note=note,
        messages=messages,
        device_epsilon=certified if shuffled else local,
        device_delta=delta if shuffled else 0.0,
    )


def planned_words(
    config: TrieConfig, locale: str, devices: int | None, known_words: Collection[str] | None = None
) -> Spend:
    """Worst-case spend of a local discovery, before any device is asked.

    Guarantee: every layer has at least the number of messages assumed here if ``devices`` take part and answer; if
    fewer do, the spend stated afterwards is larger, and the gates hold the launch.

    Args:
      devices: least number of training devices; None if unknown, so that only the local bound holds.
      known_words: words of the public vocabulary, once it exists.
    """
    local = config.messages_per_device * config.epsilon0
    if devices is None or devices < config.layers:
        return local_discovery(config.epsilon0, config.messages_per_device, local, config.delta, "local, planned")
    from discovery import outlook  # scipy is slow to import
    from pretrain.text import tokenise

    seen = outlook.local(config, devices, tokenise.alphabet(locale), known_words)
    note = f"local, planned for {devices} devices"
    return local_discovery(config.epsilon0, config.messages_per_device, seen.shuffled, config.delta, note)


def words_of(discovered: Mapping[str, Any]) -> Spend:
    """Spend of a local discovery, from its result: for reused words, the spend of the launch that paid for them."""
    stated = guarantee_of(discovered)
    note = f"local; central {stated.epsilon_central:.4g} at delta {stated.delta:g} by the privacy blanket"
    return local_discovery(
        stated.epsilon0, stated.messages_per_device, stated.device_epsilon_central, stated.delta, note
    )


def certified(discovered: Mapping[str, Any], devices: int = 1) -> float:
    """Epsilon of all messages of a person's devices in the worst layer, derived from a discovery's recorded layers.

    Guarantee: ``discovery.certificates.group.group`` with the launch file's share of honest devices; a device answers
    in one layer. A person with several devices changes one message after the other, each in some layer, so the same
    theorem holds for all messages of all of them. It assumes that no message can be linked to its sender.
    """
    # scipy is slow to import
    from discovery.certificates.group import device, honest_messages
    from discovery.device.randomizer import subset_selection

    stated = guarantee_of(discovered)
    return max(
        device(
            subset_selection(stated.epsilon0, layer.domain),
            honest_messages(layer.messages, stated.messages_per_device, stated.honest_share),
            devices * stated.messages_per_device,
            stated.delta,
        )
        for layer in stated.layers
    )


def guarantee_of(discovered: Mapping[str, Any]) -> DiscoveryGuarantee:
    """Return the guarantee in the result of a local discovery."""
    return DiscoveryGuarantee.model_validate({name: discovered[name] for name in _STATED if name in discovered})


def _config(config: LaunchConfig) -> TrieConfig:
    assert isinstance(config.discovery, TrieConfig), "the launch has no local discovery"
    return config.discovery


def _planned(config: LaunchConfig, seen: Outlook) -> Spend:
    return planned_words(_config(config), config.locale, seen.devices, seen.known_words)


def _says(config: LaunchConfig) -> str:
    local = _config(config)
    sent = local.messages_per_device
    messages = (
        f"one message of epsilon {local.epsilon0:g}" if sent == 1 else f"{sent} messages of epsilon {local.epsilon0:g}"
    )
    return f"LDP TrieHH, Subset Selection: {messages} a device" + (", counted together" if sent > 1 else "")


def _output(config: LaunchConfig, whole: Total) -> str:
    assert whole.words is not None, "words are apart from noised releases"
    return _OUTPUT[whole.words.how]


def _trusts(config: LaunchConfig, whole: Total) -> tuple[str, ...]:
    assert whole.words is not None, "words are apart from noised releases"
    if whole.words.how == "local":
        return (_LOCAL,)
    return (
        f"The total relies on {_HIDDEN[whole.words.how]}. It assumes that {_config(config).honest_share:.0%} of "
        "the other devices of a layer follow the protocol and reveal their messages to no one; with fewer, the loss is "
        "larger. Against a party that links its messages a device has only the local guarantee.",
    )


def _limits(config: LaunchConfig) -> tuple[str, ...]:
    units = (
        "Over launches rho adds up for a device, and discovery's local epsilon for a typed word; these two are never "
        "added. A device's loss to all its messages joins rho as epsilon, in a budget of its own."
    )
    return (units, _item_losses(config))


def _item_losses(config: LaunchConfig) -> str:
    ceiling = config.policy.population_max_discovery_epsilon
    opening = (
        "The losses of a typed word to several discoveries on one population add up; words that one launch discovered "
        "and another reuses count once. "
    )
    if ceiling is None:
        return opening + "The ledger lists these losses, but this launch file sets no ceiling on their sum."
    window = config.policy.budget
    within = f" in any {window.days} days" if window else ""
    return opening + f"The ledger refuses a launch that would take their sum{within} above epsilon {ceiling:g}."


def _needs(config: LaunchConfig, train: int) -> tuple[str, ...]:
    local = _config(config)
    if train < local.layers:
        return (
            f"discovery.layers: {local.layers} needs as many training devices, and there are {train}+; lower it to "
            f"{max(train, 1)} or less",
        )
    if config.mechanism.secagg is None:
        return ()
    from discovery.participation import fewest_in_a_layer
    from federated.secagg.votes import require_devices

    smallest = fewest_in_a_layer(train, local)
    try:
        require_devices(smallest)
    except ValueError:
        return (
            f"discovery.layers: {local.layers} may leave {smallest} of {train}+ training devices to a layer, too "
            "few for secure aggregation; lower it, or write trust: server",
        )
    return ()


def _cheaper(config: LaunchConfig, seen: Outlook, fits: Callable[[Spend], bool]) -> Iterator[str]:
    local = _config(config)
    low, high = 0, local.messages_per_device  # high is too many
    while high - low > 1:
        middle = (low + high) // 2
        fewer = local.model_copy(update={"messages_per_device": middle})
        fit = fits(planned_words(fewer, config.locale, seen.devices, seen.known_words))
        low, high = (middle, high) if fit else (low, middle)
    if seen.devices is None and config.private_text.source == "files":
        yield "set planning.population_estimate, as shuffling certifies a lower loss among many devices"
    if low:
        yield f"lower discovery.messages_per_device from {local.messages_per_device} to {low}"


def _again(config: LaunchConfig, discovered: Mapping[str, Any], devices: int) -> Spend:
    stated, shuffled = guarantee_of(discovered), certified(discovered, devices)
    sent = devices * stated.messages_per_device
    return local_discovery(stated.epsilon0, sent, shuffled, stated.delta, f"local, of {devices} devices")


def _audited(ctx: StageContext) -> tuple[Verdict, ...]:
    """Verdicts on a local word discovery."""
    from discovery.device.answer import letters_of
    from discovery.device.typed import TypedWords
    from evaluation.audit.released.local_words import local_words_audit
    from pipeline.run import artifacts
    from pretrain.text import tokenise

    config = _config(ctx.config)
    typed = TypedWords.gather(artifacts.store(ctx).typed_words("train"), ctx.run.private("audit_releases"))
    published = {word.word: word.form for word in artifacts.discovered_words(ctx)}
    known = frozenset(artifacts.vocabulary(ctx, "ingest_public").words)
    rule = rule_of(config, letters_of(tokenise.alphabet(ctx.config.locale)), known)
    layers, stated = layers_of(ctx.private / _KEPT), ctx.run.result("discover")
    asked = zip((row["domain"] for row in stated["layers"]), (len(layer.asked) for layer in layers), strict=True)
    on_text = local_words_audit(ctx.noise_key, layers, published, typed.of, rule)
    return (*on_text, on_certificate(config, asked, stated["device_epsilon_central"]))


def on_certificate(config: TrieConfig, asked: Iterable[tuple[int, int]], stated: float) -> Verdict:
    """Verdict on the stated epsilon of a device: no less than an explicit attack reaches.

    The certificate counts the messages that hide a device. This counts the honest devices itself, from the records of
    who was asked and the launch file, and holds an attack in the certificate's place. Both go from one message to a
    device by ``certificates.group``, so a mistake there passes both.

    Args:
      asked: of each layer, its items and the number of devices that answered.
      stated: epsilon of all messages of a device after shuffling.
    """
    from discovery.certificates.attack import attack  # scipy is slow to import
    from discovery.certificates.group import group
    from discovery.device.randomizer import subset_selection

    size, least = config.messages_per_device, 0.0
    for items, devices in asked:
        sample, others = subset_selection(config.epsilon0, items), max(devices - devices % 10, 1) - 1
        reach = partial(attack, sample, size + size * int(config.honest_share * others))
        least = max(least, group(reach, size, config.epsilon0, config.delta))
    return Verdict(
        "certificate",
        "the stated epsilon of a device is no less than an attack on its shuffled messages reaches, among the honest "
        "devices that the launch file assumes",
        "a certificate about a tenth too low: the attack is that far from the best certificate",
        stated * _SEARCHED >= least,
        "" if stated * _SEARCHED >= least else "an attack reaches a larger epsilon than is stated",
    )


def layers_of(folder: Path) -> "list[Layer]":
    """Load the finished layers of a discovery."""
    from discovery import participation, state
    from evaluation.audit.released.local_words import Layer

    records = participation.read(folder)
    layers: list[Layer] = []
    devices, asked_in = records["device"].to_numpy(), records["layer"].to_numpy()
    while (left := state.load(folder, len(layers) + 1)) is not None:
        number = left.row.layer
        words = frozenset(word.word for word in left.words)
        asked, votes_d = devices[asked_in == number], state.votes(folder, number)
        layers.append(Layer(asked, votes_d, left.row.messages, left.prefixes, words, left.forms))
    return layers


def rule_of(config: TrieConfig, letters: str, known: frozenset[str]) -> "Rule":
    """Build the audit's rule from a launch file."""
    from evaluation.audit.released.local_words import Rule

    return Rule(
        epsilon0=config.epsilon0,
        messages=config.messages_per_device,
        greedy=config.sampler == "greedy",
        layers=config.layers,
        letters=letters,
        max_prefixes=config.max_prefixes,
        anonymity=config.anonymity,
        known=known,
    )


LOCAL_WORDS = Release(
    stage="discover",
    name="local_words",
    block="discovery",
    asked=lambda config: config.central_discovery is None,
    says=_says,
    planned=_planned,
    paid=lambda config, result: words_of(result),
    neighbour="messages of word discovery each replaced by one that names no word",
    output=_output,
    needs=_needs,
    cheaper=_cheaper,
    again=_again,
    asks=("epsilon0", "messages_per_device", "delta", "honest_share"),
    disclosed=lambda config, results: LocalWords.model_validate(results("discover"), extra="ignore"),
    trusts=_trusts,
    limits=_limits,
    make="discovery.device.randomizer:randomise",
    keeps=(_KEPT,),
    audit=_audited,
    proves=("messages", "votes", "choice", "certificate"),
)
