"""Descriptions of registered models and versions, in words; only people read them."""

from collections.abc import Mapping


def model(about: Mapping[str, str]) -> str:
    """A registered model's description, as Markdown.

    Args:
      about: its tags: locale, feature and population.
    """
    return (
        f"What keyboards in {about['locale']} get for {about['feature']}, trained on population "
        f"`{about['population']}`. `champion` is what users have, `previous` what `tacit rollback` gives them back, "
        "`candidate` what was registered last, `experiment` what a share of devices tries. The ledger knows every "
        "version by its digest: one that it does not know is neither served nor gone back to, whatever its alias."
    )


def version(tags: Mapping[str, str]) -> str:
    """A version's description, as Markdown.

    Args:
      tags: of the version (``pipeline.stages.publish.registered_tags``).
    """
    return (
        f"Launch `{tags.get('tacit.launch', '?')}`: device-level rho {tags.get('privacy.rho', '?')}, epsilon "
        f"{tags.get('privacy.epsilon', '?')} at delta {tags.get('privacy.delta', '?')}. Its disclosure is in the "
        "bundle. Signature: none; the privacy ledger holds the SHA-256 of `bundle.json`, which holds those of all "
        "other files."
    )
