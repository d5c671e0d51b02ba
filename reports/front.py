"""Values of the report's first page, for every language, and its summary in a few lines for a reviewer."""

from collections.abc import Callable, Mapping
from typing import Any

from markupsafe import Markup

from reports.disclosure.document import Disclosure
from reports.disclosure.releases import CentralWords, DataAccess
from reports.disclosure.utility import Difference
from reports.formats import change, light, number, percent, warnings
from reports.languages import in_digits_of
from reports.losses import guesser, strength, up
from reports.markdown import standing
from reports.worst import SENTENCES, main_concerns, worst_facts

# Rate of false alarms that the attacker of the first page may raise.
FALSE_ALARMS = 0.001
_SOURCES = {"chitchat": "data_set", "synthetic": "made_up"}


def front(disclosure: Disclosure, language: str) -> dict[str, Any]:
    """Values for the template of a language: facts, and functions that format numbers for that language.

    A language's template gives ``worst`` the sentences of main concerns, and names of metrics and arms.
    """
    d, facts = disclosure, main_concerns(disclosure)

    def local(write: Callable[[float], str]) -> Callable[[float], Markup]:
        # Markdown must not escape a number or change its spaces.
        return lambda value: Markup(in_digits_of(language, write(float(value))))

    def worst(title: str, sentences: Mapping[str, str], names: Mapping[str, str]) -> Markup:
        lines = [title] if facts else []
        for fact in facts:
            values = {name: names.get(text) or in_digits_of(language, text) for name, text in fact.values.items()}
            lines.append(f"- {sentences[fact.key].format_map(values)}")
        return Markup("\n".join(f"> {line}" for line in lines))

    def seen(names: Mapping[str, str], last: str) -> str:
        """All that the server sees of a device before noise, joined by commas and ``last``."""
        *some, end = [
            text for name, text in names.items() if name == "held_out" or name in {each.name for each in d.releases}
        ]
        return last.join(filter(None, (", ".join(some), end)))

    utility, guarantee, central = d.utility, d.accounting, d.release(CentralWords)
    words, noised = guarantee.total.words, guarantee.total.noised
    beside = (words.epsilon, words.delta) if words else (0.0, 0.0)
    odds = guesser(guarantee.mu, FALSE_ALARMS, *beside)
    had = utility.champion if utility else None
    return {
        "d": d,
        "lang": language,
        "n": local(number),
        "share": local(percent),
        "loss": local(up),
        "amber": light(d) == "amber",
        "warned": warnings(d),
        "passed": sum(gate.passed for gate in d.decision.gates),
        "failed": [gate.id for gate in d.decision.gates if not gate.passed],
        "worst": worst,
        "sentences": SENTENCES,
        "text": "made_up" if d.launch.synthetic_population else _SOURCES.get(d.population.source, "typed"),
        "words": words,
        "noised": noised,
        "delta": f"{guarantee.delta:g}",
        "bound": guarantee.bound,
        "addition": Markup(in_digits_of(language, guarantee.total.addition)),
        "rho": Markup(in_digits_of(language, up(noised.rho if noised else None, 4))),
        "tier": strength(guarantee.bound),
        "odds": Markup(in_digits_of(language, odds)),
        "certain": odds.startswith("100"),
        "first": utility.value("private", "top1_recall") if utility else None,
        "three": utility.part("new_words", "private", "top3_recall") if utility else None,
        "had": had,
        "before": had.earlier if had else None,
        "gained": gained(d),
        "points": local(lambda value: f"{100 * value:+.2f}"),
        "uncovered": uncovered(d),
        "seen": seen,
        "rare": central.words_per_device if central else 0,
        "standing": standing(),
    }


def gained(disclosure: Disclosure) -> Difference | None:
    """Gain in top-1 recall over the current model; None where it is no arm of the comparison."""
    utility = disclosure.utility
    arm = utility.champion.arm if utility and utility.champion and not utility.champion.left_out else None
    rows = utility.differences if utility else ()
    wanted = ("private", arm, "top1_recall")
    return next((row for row in rows if (row.candidate, row.baseline, row.metric) == wanted), None)


def uncovered(disclosure: Disclosure) -> tuple[DataAccess, ...]:
    """Uses of private text that no guarantee covers."""
    return tuple(access for access in disclosure.data_accesses if access.data == "private" and not access.covered)


def concerns(disclosure: Disclosure) -> tuple[str, ...]:
    """Warnings and worst facts of the report, worst first; an approval accepts each of them."""
    return (*(warning.text for warning in warnings(disclosure)), *worst_facts(disclosure))


def summary(disclosure: Disclosure) -> tuple[str, ...]:
    """One line each: guarantee, what it leaves out, top-1 recall, the same before, and gain over the current model."""
    guarantee, utility, left = disclosure.accounting, disclosure.utility, len(uncovered(disclosure))
    lines = [
        f"guarantee of one device: {guarantee.total.sentence}",
        f"outside the guarantee: {left} use{'s' * (left > 1)} of private text, which page one lists"
        if left
        else "the guarantee covers every use of private text",
    ]
    first = utility.value("private", "top1_recall") if utility else None
    if utility is None or first is None:
        return (*lines, "no comparison on held-out devices")
    lines.append(
        f"first suggestion correct in {percent(first.value)} of cases ({percent(first.low)} to {percent(first.high)})"
    )
    if start := utility.value("start", "top1_recall"):
        lines.append(f"before private training correct in {percent(start.value)}")
    had, difference = utility.champion, gained(disclosure)
    if had is None:
        lines.append("users have no model of this keyboard yet")
    elif difference is None:
        lines.append(f"not compared with the current version {had.version}: {had.left_out or 'no figure'}")
    else:
        lines.append(f"against the current version {had.version}: {change(difference).told()}")
    return tuple(lines)
