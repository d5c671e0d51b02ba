"""The block of the disclosure in which words found locally and everything else are one number."""

from pydantic import model_validator

from pretrain.config import Config

_SAME = 1e-6  # relative; what is further apart is a mistake, not rounding


class Together(Config):
    """One bound for a whole launch whose words were found locally: basic composition of them and of everything else.

    What a device sends to word discovery is (``words_epsilon``, ``words_delta``)-indistinguishable once it is shuffled,
    or added up securely, among everybody's; all noised releases of its split are (``noised_epsilon``,
    ``noised_delta``)-private whatever words came out. So all of it is at the sums.

    Attributes:
      epsilon: at ``delta``; of a held-out device, if evaluation costs it more.
    """

    epsilon: float
    delta: float
    words_epsilon: float
    words_delta: float
    noised_epsilon: float
    noised_delta: float

    @model_validator(mode="after")
    def _both_are_counted(self) -> "Together":
        for name in ("epsilon", "delta"):
            total = getattr(self, f"words_{name}") + getattr(self, f"noised_{name}")
            stated = getattr(self, name)
            if stated < total * (1 - _SAME) or (name == "delta" and stated > total * (1 + _SAME)):
                raise ValueError(f"{name}: {stated}, but words and noised releases add up to {total}")
        return self
