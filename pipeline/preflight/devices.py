"""Devices of a launch's files: their number before and after each filter, and by split, before any text is read.

Guarantee: what is stated goes to logs and to Airflow before any spend, so it is no more than ``ingest_private`` states
of the same devices, and of devices that are left out: numbers rounded down to tens and, without a budget for
evaluation, rows rounded down to hundreds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from federated.config.population import Files, Retention
from pipeline.ground.errors import BudgetExceeded, LedgerMissing, PopulationUnknown
from pipeline.launch.config import LaunchConfig
from pipeline.releases.evaluation import EVALUATION
from pretrain.reading.paths import shown

if TYPE_CHECKING:
    from federated.devices.readers import FileCounts
    from federated.devices.withdrawals import Withdrawals

# Rows of larger files are counted when the launch reads them, which is also before any spend.
MOST_COUNTED_BYTES = 1 << 30
# A device with a larger share of the rows, among this many devices, is no device but a placeholder such as "unknown".
_LARGE_SHARE, _FEWEST_COMPARED = 0.1, 50
# Tags of other locales that a message names.
_MOST_TAGS = 5


@dataclass(frozen=True)
class CountedDevices:
    """Devices of a launch's files, rounded down to tens.

    Attributes:
      filters: sentence with the number of devices before and after each filter, and why it leaves some out.
      rows: sentence with numbers of rows, without them with a budget for evaluation, and with files that are copies.
      splits: devices by split, as ``ingest_private`` will state them; None if the population is not registered, as its
        ledger then has no secret that splits it.
    """

    devices: int
    filters: str
    rows: str
    splits: Mapping[str, int] | None


def stated_devices(config: LaunchConfig) -> int | None:
    """Number of devices by the launch file alone: those of a simulation, or the planning block's estimate."""
    if not isinstance(config.private_text, Files):
        return config.private_text.devices
    return config.planning.population_estimate if config.planning else None


def retention(config: LaunchConfig, ledger_url: str, run_id: str) -> Retention | None:
    """Retention window of the text for a launch; None without a limit, a registration, or text that has not expired."""
    from pipeline.ledger.ledger import PrivacyLedger
    from pipeline.run.population import kept

    try:
        population = PrivacyLedger(ledger_url).registered(config.population)
        return kept(config, population, run_id) if population else None
    except (LedgerMissing, BudgetExceeded):
        return None


def countable(config: LaunchConfig) -> bool:
    """Return whether the launch reads files, of a size that is counted before it begins.

    Raises:
      ValueError: no file matches.
    """
    from pretrain.reading import rows

    private = config.private_text
    if not isinstance(private, Files):
        return False
    return sum(path.stat().st_size for path in rows.stored(private.paths, "private_text.paths")) <= MOST_COUNTED_BYTES


def count_devices(config: LaunchConfig, ledger_url: str, kept: Retention | None) -> CountedDevices:
    """Count the devices of a launch's files (``countable``).

    Args:
      kept: retention window of the population's text; None for no limit.

    Raises:
      ValueError: a file is damaged, no row is left, or two spellings of one id are there.
      OSError: the disk does not answer.
    """
    from federated.devices import readers, store
    from federated.devices.ids import require_distinct

    private = config.private_text
    left_out, secret = _of_population(config, ledger_url)
    assert isinstance(private, Files), "the caller checks that the launch reads files"
    found = readers.count(private.paths, config.locale, kept, left_out)
    within = "" if kept is None else f"the {kept.days} days before {kept.as_of}"
    taken = found.rows - found.other_locales - found.older
    if not taken:
        typed, fix = (f" was typed in {within}", "locale, ts") if within else ("", "locale")
        raise ValueError(f"private_text.paths: {no_row(found, config.locale, f'correct {fix}, or the files', typed)}")
    require_distinct(found.clients, "private_text.paths", case_sensitive=left_out.case_sensitive_ids)
    told, covered = "", EVALUATION.asked(config)
    if not covered:
        bad, kind = found.unreadable
        all_rows, other, older, bad = map(readers.hundreds, (taken, found.other_locales, found.older, bad))
        told += f" with {all_rows:,}+ rows" if all_rows else ""
        if found.devices >= _FEWEST_COMPARED and found.largest_share >= _LARGE_SHARE:
            least = int(found.largest_share * 10)
            told += f"; {least}0% of them or more have one client_id, as of people without an id: leave such rows out"
        told += f"; {other:,}+ of other locales are left out" if other else ""
        told += f"; {older:,}+ that were typed outside {within} are deleted" if older else ""
        told += f"; {bad:,}+ that cannot be read are left out, most of them {kind}" if bad else ""
    again = readers.copies(private.paths)
    if again:
        name, original = map(shown, again[0])
        told += f"; copies of other files: {len(again):,}, as {name} of {original}; name each file once"
    splits = None
    if secret is not None:
        splits = store.devices_by_split(found.clients, store.split_key(config.population, secret), private)
    return CountedDevices(
        devices=readers.tens(found.devices),
        filters=filters_of(found, config.locale, within, with_tags=not covered),
        rows=told,
        splits=splits,
    )


def unlike_locale(config: LaunchConfig, ledger_url: str, kept: Retention | None) -> list[str]:
    """Note on text of a launch's files that seems to be of another script or language than its locale.

    Raises:
      ValueError, OSError: as of ``count_devices``.
    """
    from federated.devices import readers
    from pretrain.text.likeness import unlikeness
    from pretrain.text.tokenise import sentences

    private, locale = config.private_text, config.locale
    assert isinstance(private, Files), "the caller checks that the launch reads files"
    texts = readers.first_texts(private.paths, locale, kept, _of_population(config, ledger_url)[0])
    unlike = unlikeness((words for text in texts for words in sentences(text, locale)), locale)
    return [f"private_text: {unlike}"] if unlike else []


def filters_of(found: "FileCounts", locale: str, within: str = "", *, with_tags: bool = True) -> str:
    """Sentence with the devices before and after each filter, in tens, and why it leaves some out.

    Args:
      within: retention window, in words; empty for none.
      with_tags: count the devices that are left out by their tag; otherwise one device's text would change a number.
    """
    from federated.devices.readers import tens

    parts = [f"private_text.paths: {tens(found.everybody):,}+ devices in the files"]
    if found.tags is None:
        parts.append(f"no column locale, so every row counts as {locale}")
    else:
        others = _tags(found.tags) if with_tags else ""
        parts.append(
            f"by column locale {tens(found.of_locale):,}+ of them have a row of {locale}"
            + (f", and the others only rows of {others}" if others else "")
        )
    if within:
        parts.append(f"{tens(found.devices):,}+ of these have one of {within}")
    return "; ".join(parts)


def no_row(found: "FileCounts", locale: str, fix: str, typed: str = "") -> str:
    """Message that files have no row of a locale, with the tags that they have."""
    tags = _tags(found.tags or {}, with_counts=False)
    there = f"; column locale has {tags}" if tags and not found.of_locale else ""
    return f"no row of {locale!r}{typed}{there}; {fix}"


def _tags(tags: Mapping[str, int], *, with_counts: bool = True) -> str:
    """Most frequent tags of ten devices and more; rarer ones could name one device, and what is no locale is text."""
    from langcodes import tag_is_valid

    from federated.devices.readers import tens

    told = sorted(((tens(count), tag) for tag, count in tags.items() if tens(count)), key=lambda row: (-row[0], row[1]))
    named = [(tag if tag_is_valid(tag) else "no locale") if tag else "no tag" for _, tag in told]
    rows = [f"{name} ({count:,}+)" for name, (count, _) in zip(named, told, strict=True)] if with_counts else named
    return ", ".join(rows[:_MOST_TAGS]) + (" and others" if len(rows) > _MOST_TAGS else "")


def _of_population(config: LaunchConfig, ledger_url: str) -> "tuple[Withdrawals, bytes | None]":
    """Devices that are excluded, and the secret that splits the others; none before the population is registered."""
    from federated.devices.withdrawals import NOBODY
    from pipeline.ledger.ledger import PrivacyLedger

    try:
        ledger = PrivacyLedger(ledger_url)
        return ledger.withdrawn(config.population), ledger.split_secret(config.population)
    except (LedgerMissing, PopulationUnknown):
        return NOBODY, None
