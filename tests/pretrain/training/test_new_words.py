"""New words in public text: more of it, a start that is better than chance, and a probability that is meant."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pretrain.config import AdaptConfig, ModelConfig, PretrainConfig
from pretrain.model.keyboard_lm import KeyboardLM, build_model
from pretrain.text.batches import find_rows
from pretrain.text.vocabulary import EOS, PAD, SPECIALS, UNK, TokenStream, Vocabulary, extend, join_owners
from pretrain.training import extend as extend_module
from pretrain.training.extend import NewWords, adapt, grow, set_biases
from pretrain.training.new_words import enrich, hold_back, new_word_loss
from pretrain.training.train import evaluate, pretrain

# Words of three endings, of which each follows only the one before; the last stem of each is new.
ENDINGS = ("walking", "station", "happily")
STEMS = "bcdfghk"
OLD = Vocabulary(SPECIALS + tuple(f"{stem}{ending[1:]}" for ending in ENDINGS for stem in STEMS[:-1]))
NEW = extend(OLD, [f"{STEMS[-1]}{ending[1:]}" for ending in ENDINGS], max_new=3)
FIRST = len(OLD)


def text(owners: int, seed: int, rarity: float) -> TokenStream:
    """Sentences of nine words whose endings go round; a new word stands in a place with probability ``rarity``."""
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(owners):
        turn = rng.integers(3) + np.arange(9)
        words = [
            f"{STEMS[-1] if rng.random() < rarity else STEMS[rng.integers(6)]}{ENDINGS[place % 3][1:]}"
            for place in turn
        ]
        documents.append(np.append(NEW.ids(words), EOS).astype(np.int32))
    return join_owners(documents)


def unseen(stream: TokenStream) -> TokenStream:
    """As it was before the vocabulary grew."""
    return TokenStream(np.where(stream.tokens_N >= FIRST, UNK, stream.tokens_N), stream.offsets_D1)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> KeyboardLM:
    torch.set_num_threads(1)
    model = build_model(ModelConfig(embedding_dim=8, hidden_dim=16, tied=True), len(OLD), seed=3)
    config = PretrainConfig(
        steps=150, batch_sentences=32, sequence_words=10, learning_rate=0.02,
        evaluate_every_steps=150,
    )  # fmt: skip
    held_out = unseen(text(30, 2, 0.02))
    pretrain(config, model, unseen(text(300, 1, 0.02)), held_out, tmp_path_factory.mktemp("taught"), 1)
    return model


HELD_OUT = text(300, 9, 0.1)


def random_start(grown: KeyboardLM, taught: KeyboardLM, public: TokenStream, seed: int) -> KeyboardLM:
    """The same model with rows of a fresh model for the new words, their biases set in the same way."""
    fresh = build_model(ModelConfig(embedding_dim=8, hidden_dim=16, tied=True), len(NEW), seed)
    strangers = Vocabulary(OLD.words + tuple(f"{number}" * 9 for number in range(3)))  # like no other word
    other = grow(taught, OLD, strangers, public=public)
    with torch.no_grad():
        other.embedding[FIRST:] = fresh.embedding[FIRST:]
        other.output_bias[FIRST:] = grown.output_bias[FIRST:]
    return other


@pytest.mark.slow
def test_words_spelt_alike_are_a_better_start_than_chance_before_and_after_adapting(taught: KeyboardLM, tmp_path: Path):
    public = text(300, 5, 0.02)
    grown = grow(taught, OLD, NEW, public=public)
    others = [random_start(grown, taught, public, seed) for seed in range(4)]
    start = new_word_loss(grown, HELD_OUT, FIRST, 10)
    assert start < np.mean([new_word_loss(other, HELD_OUT, FIRST, 10) for other in others]) - 0.5
    config = AdaptConfig(steps=15, batch_sentences=16, learning_rate=0.01)

    def adapted(model: KeyboardLM, stream: TokenStream, name: str) -> float:
        adapt(config, model, stream, HELD_OUT, 10, 1, tmp_path / name)
        return new_word_loss(model, HELD_OUT, FIRST, 10)

    after_others = [adapted(other, public, f"random-{seed}") for seed, other in enumerate(others)]
    after = adapted(grown, public, "alike")
    assert after < np.mean(after_others) - 0.2


@pytest.mark.slow
def test_more_of_the_text_that_holds_them_teaches_new_words_more(taught: KeyboardLM, tmp_path: Path):
    public, config = text(300, 5, 0.005), AdaptConfig(steps=60, batch_sentences=16, learning_rate=0.02)
    richer = enrich(public, FIRST, 0.5, 20)
    assert richer.copies > 10
    losses = []
    for name, stream_of in (("plain", public), ("richer", richer.stream)):
        model = grow(taught, OLD, NEW, public=public)
        adapt(config, model, stream_of, HELD_OUT, 10, 1, tmp_path / name)
        losses.append(new_word_loss(model, HELD_OUT, FIRST, 10))
    assert losses[1] < losses[0] - 0.5


def test_new_words_get_together_half_of_what_unk_had(taught: KeyboardLM):
    public = text(400, 5, 0.05)
    grown = grow(taught, OLD, NEW, public=public)
    inputs_BT, targets_BT = find_rows(public.tokens_N, 20).batch(np.arange(400))
    with torch.no_grad():
        logits_BTV, _ = taught(torch.where(inputs_BT >= FIRST, UNK, inputs_BT))
        unk = torch.softmax(logits_BTV, -1)[targets_BT != PAD][:, UNK].mean().item()
        logits_BTV, _ = grown(torch.where(inputs_BT >= FIRST, UNK, inputs_BT))
        logits_MV = logits_BTV[targets_BT != PAD]
        # Against the sum over old words: what new words take shrinks that of the others a little.
        given = (logits_MV - torch.logsumexp(logits_MV[:, :FIRST], 1, keepdim=True)).exp()[:, FIRST:].mean(0)
    assert given.tolist() == pytest.approx([unk / 6] * 3, rel=1e-3)
    # By the formula that needs no text it is far from that.
    blind = grow(taught, OLD, NEW).output_bias[FIRST:]
    assert (blind - grown.output_bias[FIRST:]).abs().max() > 0.5


def stream(*sentences: list[int]) -> TokenStream:
    return join_owners([np.array([*sentence, EOS], dtype=np.int32) for sentence in sentences])


def test_sentences_with_a_new_word_are_repeated_up_to_the_share_and_no_further():
    plain = stream(*[[4, 5]] * 18, [4, 30], [31, 30, 4])
    richer = enrich(plain, 30, 0.5, 20)
    assert (richer.words, richer.sentences, richer.copies) == (2, 2, 9)
    owners = [tuple(richer.stream.owner(number)) for number in range(len(richer.stream))]
    assert owners.count((4, 30, EOS)) == owners.count((31, 30, 4, EOS)) == 9
    assert owners.count((4, 5, EOS)) == 18
    assert enrich(plain, 30, 0.5, 3).copies == 3
    assert enrich(plain, 30, 0.05, 20).copies == 1
    for nothing in (enrich(plain, 40, 0.5, 20), enrich(plain, 30, 0.0, 20), enrich(stream(), 4, 0.5, 20)):
        assert nothing.copies == 1
    assert enrich(plain, 30, 0.0, 20).stream is plain


def test_only_the_sentence_of_a_document_is_repeated():
    document = np.array([4, 5, EOS, 30, EOS, 6, EOS], dtype=np.int32)
    richer = enrich(join_owners([document]), 30, 0.5, 20)
    assert [list(richer.stream.owner(number)) for number in range(2)] == [document.tolist(), [30, EOS]]


def test_the_loss_is_that_of_new_words_alone():
    model = build_model(ModelConfig(embedding_dim=4, hidden_dim=6, tied=True), len(NEW), seed=1)
    new, other = FIRST + 1, 5
    held_out = stream([other, new, other], [other, other])
    with torch.no_grad():
        logits_BTV, _ = model(torch.tensor([[1, other, new, other]]))
    expected = -torch.log_softmax(logits_BTV, -1)[0, 1, new].item()
    assert new_word_loss(model, held_out, FIRST, 10) == pytest.approx(expected, rel=1e-5)
    assert new_word_loss(model, stream([other]), FIRST, 10) is None


def expected_frequency(model: KeyboardLM, public: TokenStream) -> np.ndarray:
    """Of each new word over the contexts of a text, against the sum over old words, a typed word."""
    rows = find_rows(public.tokens_N, 20)
    inputs_BT, targets_BT = rows.batch(np.arange(len(rows)))
    with torch.no_grad():
        logits_BTV, _ = model(torch.where(inputs_BT >= FIRST, UNK, inputs_BT))
        logits_MV = logits_BTV[targets_BT != PAD]
        chance_MN = (logits_MV - torch.logsumexp(logits_MV[:, :FIRST], 1, keepdim=True)).exp()[:, FIRST:]
        return chance_MN.sum(0).numpy() / int(((targets_BT != PAD) & (targets_BT != EOS)).sum())


def test_new_words_are_as_probable_as_they_are_typed(taught: KeyboardLM):
    public, wanted = text(400, 5, 0.05), np.array([0.02, 1e-6, 0.3])
    grown = grow(taught, OLD, NEW, public=public)
    set_biases(grown, FIRST, public, wanted)
    np.testing.assert_allclose(expected_frequency(grown, public), wanted, rtol=1e-3)
    assert torch.equal(grown.output_bias[:FIRST], taught.output_bias)


def test_every_fifth_sentence_with_a_new_word_is_kept_back():
    documents = [[4, EOS, number, EOS] for number in range(30, 42)]
    public = join_owners([np.array(document, dtype=np.int32) for document in documents])
    rest, back = hold_back(public, 30)
    assert back.tokens_N.tolist() == [34, EOS, 39, EOS]
    owners = [rest.owner(number).tolist() for number in range(len(rest))]
    assert owners == [[4, EOS] if number in (34, 39) else [4, EOS, number, EOS] for number in range(30, 42)]
    nothing, none = hold_back(public, 50)
    assert nothing.tokens_N.tolist() == public.tokens_N.tolist()
    assert len(none.tokens_N) == 0
    assert len(hold_back(stream(), 4)[0].tokens_N) == 0


def adapted_to(
    taught: KeyboardLM, folder: Path, held_out: TokenStream, learning_rate: float
) -> tuple[KeyboardLM, NewWords, list[int]]:
    """A model that was adapted by what is known of its new words; also the steps that stand in its curve."""
    public = text(200, 5, 0.05)
    new = NewWords(FIRST, public, np.array([0.03, 0.03, 0.02]), held_out)
    # Rows of chance, so that there is something to learn.
    model = random_start(grow(taught, OLD, NEW, public=public), taught, public, 0)
    config = AdaptConfig(steps=40, batch_sentences=16, learning_rate=learning_rate)
    curve = adapt(config, model, enrich(public, FIRST, 0.5, 20).stream, HELD_OUT, 10, 1, folder, new=new)
    assert (curve.points[-1].validation_loss, curve.points[-1].validation_top1) == evaluate(model, HELD_OUT, 10)
    return model, new, [point.step for point in curve.points]


@pytest.mark.slow
def test_adapting_ends_where_new_words_are_predicted_best_and_leaves_them_as_frequent(
    taught: KeyboardLM, tmp_path: Path
):
    model, new, steps = adapted_to(taught, tmp_path / "useful", HELD_OUT, 0.02)
    assert steps == [0, 10, 20, 30, 40]
    np.testing.assert_allclose(expected_frequency(model, new.public), new.frequency_N, rtol=1e-3)
    # Text in which new words stand where they never do: the more is learnt, the worse for it.
    backwards = TokenStream(HELD_OUT.tokens_N.reshape(-1, 10)[:, [*range(8, -1, -1), 9]].ravel(), HELD_OUT.offsets_D1)
    model, new, steps = adapted_to(taught, tmp_path / "useless", backwards, 0.02)
    assert steps in ([0], [0, 10])
    np.testing.assert_allclose(expected_frequency(model, new.public), new.frequency_N, rtol=1e-3)
    # Where there is no such text all words decide.
    assert adapted_to(taught, tmp_path / "without", stream([5, 6]), 0.02)[2] == [0, 10, 20, 30, 40]
    broken = adapted_to(taught, tmp_path / "broken", stream([5, 6]), 30.0)[2]
    assert broken == [0]


@pytest.mark.slow
def test_an_adaptation_that_was_killed_ends_alike(taught: KeyboardLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = adapted_to(taught, tmp_path / "whole", HELD_OUT, 0.02)
    written = extend_module.write_bytes

    def killed(path: Path, content: bytes) -> None:
        if path.name == "step-00000030.safetensors":
            raise KeyboardInterrupt
        written(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(extend_module, "write_bytes", killed)
        with pytest.raises(KeyboardInterrupt):
            adapted_to(taught, tmp_path / "twice", HELD_OUT, 0.02)
    again = adapted_to(taught, tmp_path / "twice", HELD_OUT, 0.02)
    assert again[2] == whole[2]
    for name, tensor in whole[0].state_dict().items():
        assert torch.equal(again[0].state_dict()[name], tensor)
