"""Fields of version 0.1 that became constants: read at their value, refused at another, and in every digest."""

import pytest
from pydantic import TypeAdapter, ValidationError

from discovery.config import TrieConfig
from pretrain.config import AdaptConfig, Config, CorpusConfig

SAMPLE = {"source": "sample", "max_tokens": 1000}
HUB = {"source": "c4", "subset": "en", "max_tokens": 1000}
DISCOVERY = {
    "epsilon0": 8.0,
    "delta": 1e-6,
    "messages_per_device": 4,
    "honest_share": 1.0,
    "layers": 6,
    "max_prefixes": 30,
}
ADAPT = {"steps": 1, "batch_sentences": 2, "learning_rate": 0.1}


@pytest.mark.parametrize(
    ("kind", "block", "field", "constant", "other"),
    [
        (CorpusConfig, SAMPLE, "tokens_per_shard", 5_000_000, 100),
        (CorpusConfig, HUB, "dataset", "allenai/c4", "somebody/else"),
        (AdaptConfig, ADAPT, "new_word_share", 0.5, 0.4),
        (AdaptConfig, ADAPT, "most_copies", 20, 3),
        (TrieConfig, DISCOVERY, "alphabet", "locale", "printable"),
        (TrieConfig, DISCOVERY, "dropout", 0.0, 0.1),
        (TrieConfig, DISCOVERY, "projected_words", 200, 100),
    ],
)
def test_a_field_that_became_a_constant(kind: object, block: dict, field: str, constant: object, other: object) -> None:
    read = TypeAdapter(kind).validate_python
    plain, stated = read(block), read(block | {field: constant})
    assert isinstance(plain, Config)
    assert plain == stated
    assert plain.canonical()[field] == stated.canonical()[field] == constant
    assert not hasattr(plain, field)
    with pytest.raises(ValidationError, match=f"{field}: .* can no longer be chosen"):
        read(block | {field: other})
