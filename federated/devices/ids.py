"""Normal form of device ids: a device is one person's, under any spelling of its id.

Exports of one id differ in case (iOS and Android write UUIDs so), in spaces, in Unicode's forms, in ``12.0`` for ``12``
where a column was once a number, and in the writing of a UUID. Such ids would make one person two devices, perhaps in
two splits.

Guarantee: ``require_distinct`` refuses devices that two spellings of one id make, so that the unit of every guarantee
is a whole person; the ledger compares populations, and withdrawals find devices, by the same form.
"""

import re
import unicodedata
from collections.abc import Collection

_FRACTION = re.compile(r"([0-9]+)[.,]0+")
_UUID = re.compile(
    r"(?:urn:uuid:)?[{(]?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})[)}]?",
    re.ASCII | re.IGNORECASE,
)
# Zero-width characters, direction and byte order marks, controls: nobody sees them.
_UNSEEN = frozenset(("Cc", "Cf"))


def normal_form(device_id: str, *, case_sensitive: bool = False) -> str:
    """Spelling of an id that all its spellings share.

    Args:
      case_sensitive: ids that differ in case alone are different ids, as short ones in base 62; UUIDs are not.
    """
    text = device_id
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = text if case_sensitive else unicodedata.normalize("NFKC", text.casefold())
        text = "".join(str(unicodedata.decimal(each, each)) for each in text)
    if not text.isprintable():
        text = "".join(each for each in text if each.isspace() or unicodedata.category(each) not in _UNSEEN)
    text = text.strip() if case_sensitive else text.strip().lower()
    if uuid := _UUID.fullmatch(text):
        return "".join(uuid.groups()).lower()
    number = _FRACTION.fullmatch(text)
    return number[1] if number else text


def require_distinct(device_ids: Collection[str], field: str, *, case_sensitive: bool) -> None:
    """Refuse devices of which two are spellings of one id.

    Raises:
      ValueError: with their number in tens, and the fix.
    """
    again = len(device_ids) - len({normal_form(each, case_sensitive=case_sensitive) for each in device_ids})
    if again:
        several = f"{again // 10 * 10:,}+" if again >= 10 else "fewer than ten"
        raise ValueError(
            f"{field}: {several} devices have the id of another device in another spelling, so one person would be "
            "two devices, and could train and test one model. Write each client_id in one form: without spaces or "
            "invisible characters, in lower case, Unicode as NFC, whole numbers without '.0', UUIDs with hyphens and "
            "without braces. If ids that differ in case are other devices, register their population with "
            "--case-sensitive-ids"
        )
