"""Label-free scores: what they must say of encoders that know nothing, what must not matter, and what is refused."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.choosing import candidates, correlations, looking
from experiments.choosing.agreement import mined_pairs, pair_cosines, view_cosines
from experiments.choosing.consensus import consensus, mean_of_ranks
from experiments.choosing.corruptions import VARIANTS, Substitutes, corrupted, damaged
from experiments.choosing.retrieval import thinned_copies
from experiments.choosing.sample import MOST_SENTENCES, sampled, words
from experiments.choosing.scores import COMBINED, SCORES, label_free_scores, score_names
from experiments.choosing.vectors import mean_reciprocal_rank, row_cosines, unit
from selfguide.comparison.specs import parse_specs
from selfguide.errors import SelfguideError, UsageError
from selfguide.evaluation.data import own_pairs

Encode = Callable[[Sequence[str]], NDArray[np.float64]]
TOPICS = tuple(
    " ".join(f"{first}{number}{last}" for last in "abcdefghij") for first in "bdfgklmnprst" for number in range(5)
)
# What an encoder cannot get without knowing anything of the sentence; the shapes of clouds are another matter.
KNOWING = ("corruptions", "corruptions-far", "corruptions-within", "halves", "thinned", "words", "panel")
_KNOWING = [name for name in score_names() if name in KNOWING or name in COMBINED]


def text(count: int = 240, seed: int = 0) -> list[str]:
    """Sentences about one topic each, with the small words that all sentences have."""
    random = np.random.default_rng(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        topic = TOPICS[int(random.integers(len(TOPICS)))].split()
        content = random.choice(topic, size=4, replace=False)
        found[f"the {content[0]} of a {content[1]} is in the {content[2]} and a {content[3]}"] = None
    return list(found)


@cache
def _word_vector(word: str) -> NDArray[np.float64]:
    topic = next((number for number, line in enumerate(TOPICS) if word in line.split()), None)
    own = np.random.default_rng(zlib.crc32(word.encode())).normal(size=48)
    if topic is None:
        return 0.1 * own
    return own + 1.5 * np.random.default_rng(topic).normal(size=48)


def sensible(sentences: Sequence[str]) -> NDArray[np.float64]:
    """Sums of word vectors: words of one topic are alike, and small words say little."""
    return np.stack([sum((_word_vector(word) for word in words(one)), np.full(48, 1e-3)) for one in sentences])


def random_vectors(sentences: Sequence[str]) -> NDArray[np.float64]:
    return np.stack([np.random.default_rng(zlib.crc32(one.encode())).normal(size=48) for one in sentences])


def constant(sentences: Sequence[str]) -> NDArray[np.float64]:
    return np.ones((len(sentences), 5))


def no_vectors(sentences: Sequence[str]) -> NDArray[np.float64]:
    return np.zeros((len(sentences), 5))


def score_of(encode: Encode, sentences: Sequence[str], score: str = "corruptions") -> float:
    return label_free_scores(encode, sentences, names=[score])[score]


@lru_cache
def scores_of(encode: Encode) -> dict[str, float]:
    return label_free_scores(encode, text())


@pytest.mark.parametrize("name", _KNOWING)
@pytest.mark.parametrize("ignorant", [random_vectors, constant, no_vectors])
def test_who_knows_nothing_scores_below_who_knows_something(name: str, ignorant: Encode) -> None:
    assert scores_of(sensible)[name] > scores_of(ignorant)[name] + 0.1


def test_every_score_is_finite_for_every_encoder() -> None:
    for encode in (sensible, random_vectors, constant, no_vectors):
        assert np.isfinite(list(label_free_scores(encode, text(60)).values())).all()


def test_the_order_and_the_repeats_of_the_text_do_not_matter() -> None:
    sentences = text()
    turned = [*reversed(sentences), *sentences[:50], "  ".join(sentences[0].split(" ")), " "]
    assert label_free_scores(sensible, turned) == scores_of(sensible)


@pytest.mark.parametrize("factor", [1e-6, 3.7, 1e12])
def test_the_scale_of_the_vectors_does_not_matter(factor: float) -> None:
    plain = scores_of(sensible)
    scaled = label_free_scores(lambda sentences: factor * sensible(sentences), text())
    assert scaled == pytest.approx(plain, abs=1e-3)


def test_the_seed_decides_everything() -> None:
    first, again, other = (label_free_scores(sensible, text(), seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    # Another draw of damaged copies is about the same question.
    assert other["corruptions"] == pytest.approx(first["corruptions"], abs=0.1)


def test_scores_of_several_names_are_those_of_one() -> None:
    together = scores_of(sensible)
    assert set(together) == set(score_names()) == {score.name for score in SCORES} | set(COMBINED)
    for name in ("corruptions", *COMBINED):
        assert score_of(sensible, text(), score=name) == together[name]
    for name, members in COMBINED.items():
        assert together[name] == pytest.approx(np.mean([together[member] for member in members]))


def test_one_scale_for_all_sentences_is_asked_for_by_corruptions_alone() -> None:
    """Sentences pulled towards a common direction, each by another amount: the order within each stays, the scale does not."""

    def uneven(sentences: Sequence[str]) -> NDArray[np.float64]:
        vectors = unit(sensible(sentences))
        pull = np.array([3.0 * (zlib.crc32(one.split()[-1].encode()) % 97) / 97 for one in sentences])
        return np.concatenate([vectors, pull[:, None]], axis=1)

    def loss(name: str) -> float:
        return score_of(sensible, text(), score=name) - score_of(uneven, text(), score=name)

    assert loss("corruptions") > 0.02


# -- refusals ------------------------------------------------------------------------------------------------------


def test_a_tiny_text_is_refused_in_words() -> None:
    with pytest.raises(SelfguideError, match="cannot be told apart on 2 different sentences"):
        score_of(sensible, ["One sentence.", "Another sentence.", "One  sentence."])


def test_equal_sentences_are_refused_in_words() -> None:
    with pytest.raises(SelfguideError, match="1 different sentence:"):
        score_of(sensible, ["The same sentence again."] * 500)


def test_a_string_is_no_text() -> None:
    with pytest.raises(SelfguideError, match="list of sentences"):
        score_of(sensible, "notes.txt")


def test_sentences_that_are_too_short_are_refused_in_words() -> None:
    with pytest.raises(SelfguideError, match="0 sentences of 4 words or more"):
        score_of(sensible, [f"word{number}" for number in range(300)], score="corruptions")


def test_vectors_that_are_not_numbers_are_refused_in_words() -> None:
    def broken(sentences: Sequence[str]) -> NDArray[np.float64]:
        vectors = sensible(sentences)
        vectors[[index for index, one in enumerate(sentences) if "b0" in one]] = np.nan
        return vectors

    with pytest.raises(SelfguideError, match="not finite"):
        score_of(broken, text())


def test_an_unknown_score_is_refused_with_the_names() -> None:
    with pytest.raises(UsageError, match="'magic'; choose one of corruptions"):
        score_of(sensible, text(), score="magic")


def test_text_without_words_or_in_another_script_is_scored_or_refused_in_words() -> None:
    chinese = [f"我今天去了第{number}家很远的书店" for number in range(80)]
    assert np.isfinite(score_of(random_vectors, chinese, score="panel"))
    with pytest.raises(SelfguideError, match="sentences with a word"):
        score_of(random_vectors, ["! " * number for number in range(1, 80)], score="panel")


# -- pieces --------------------------------------------------------------------------------------------------------


def test_the_sample_is_bounded_and_distinct() -> None:
    sample = sampled([f"sentence number {number % 3000}" for number in range(9000)])
    assert len(sample.sentences) == len(set(sample.sentences)) == MOST_SENTENCES


def test_damage_costs_what_the_words_say() -> None:
    sample = sampled(text())
    substitutes, random = Substitutes(sample), np.random.default_rng(1)
    pieces = sample.sentences[0].split()
    other = sample.sentences[1].split()
    for kind in ("drop", "replace", "splice"):
        copy, changed = damaged(pieces, 3, kind, other, substitutes, random)
        assert changed.sum() == 3
        assert len(copy.split()) == len(pieces) - (3 if kind == "drop" else 0)
    assert sample.idf("the") < sample.idf("b0a") < sample.idf("unheard") + 1e-9


def test_grades_cover_the_range_and_end_with_another_sentence() -> None:
    pairs = corrupted(sampled(text()))
    grades = np.array([pair.grade for pair in pairs])
    assert grades.min() == 0.0
    assert 0.8 < grades.max() < 1.0
    assert (np.histogram(grades, bins=5, range=(0, 1))[0] > 0.05 * len(grades)).all()
    assert len(pairs) == 240 * (VARIANTS + 1)


def test_substitutes_are_about_as_frequent() -> None:
    sample = sampled(text())
    random = np.random.default_rng(1)
    drawn = {Substitutes(sample).of("the", random) for _ in range(50)}
    assert "the" not in drawn
    assert drawn <= set(sample.document_frequency)


def test_thinned_copies_have_half_of_the_words_in_their_order() -> None:
    sample = sampled(text())
    for whole, thin in zip(sample.sentences, thinned_copies(sample)[0], strict=True):
        rest = iter(whole.split())
        assert all(word in rest for word in thin.split())
        assert len(thin.split()) == (len(whole.split()) + 1) // 2


def test_mined_pairs_are_distinct_and_of_different_sentences() -> None:
    first, second, cosines = mined_pairs(sampled(text()))
    assert len(set(zip(first, second, strict=True))) == len(first)
    assert all(one < two for one, two in zip(first, second, strict=True))
    assert all(len(each) == len(first) for each in cosines.values())
    assert np.ptp(cosines["words"]) > 0.5


def test_cosines_of_the_views_are_between_sentences_of_length_one() -> None:
    for cosines in view_cosines(text(50)).values():
        assert np.diagonal(cosines) == pytest.approx(np.ones(50))
        assert cosines == pytest.approx(cosines.T)
        assert np.abs(cosines).max() <= 1.0


def test_reciprocal_rank_against_a_loop_with_ties_in_the_middle() -> None:
    random = np.random.default_rng(3)
    queries, targets = random.normal(size=(2, 30, 4))
    targets[5] = targets[6]
    cosines = np.round(unit(queries) @ unit(targets).T, 9)
    expected = []
    for index, row in enumerate(cosines):
        nearer = sum(value > row[index] for value in row)
        expected.append(1 / (1 + nearer + (sum(value == row[index] for value in row) - 1) / 2))
    assert mean_reciprocal_rank(queries, targets) == pytest.approx(np.mean(expected))
    assert mean_reciprocal_rank(np.ones((9, 2)), np.ones((9, 2))) == pytest.approx(2 / 10)


def test_cosines_of_nothing_are_nothing() -> None:
    assert row_cosines(np.zeros((1, 3)), np.ones((1, 3)))[0] == 0.0


def test_consensus_leaves_out_who_says_something_else() -> None:
    sample = sampled(text())

    def noisy(amount: float, seed: int) -> Encode:
        def encode(sentences: Sequence[str]) -> NDArray[np.float64]:
            return sensible(sentences) + amount * np.random.default_rng(seed).normal(size=(len(sentences), 48))

        return encode

    members = [noisy(1.0, 1), noisy(2.0, 2), noisy(4.0, 3), random_vectors, constant]
    found = consensus([pair_cosines(member, sample) for member in members])
    assert min(found[:3]) > max(found[3:])
    with pytest.raises(SelfguideError, match="three encoders"):
        consensus([pair_cosines(sensible, sample)] * 2)


def test_mean_of_ranks_counts_places_only() -> None:
    scores = {"corruptions": [0.1, 0.2, 0.3], "halves": [1.0, 5.0, 900.0], "panel": [0.3, 0.2, 0.1]}
    assert mean_of_ranks(scores) == pytest.approx([5 / 3, 2.0, 7 / 3])


# -- the validation ------------------------------------------------------------------------------------------------


def test_there_are_enough_candidates_and_every_one_can_be_made() -> None:
    specs = {seed: parse_specs(words) for seed, words in candidates.BY_SEED.items()}
    tuned = [spec for many in specs.values() for spec in many if spec.words not in candidates.UNTUNED]
    assert len(tuned) >= 24
    assert len(candidates.UNTUNED) >= 24
    assert {"simcse", "sg-opt", "sg", "consert", "ct", "mirror", "fused"} <= {spec.stages[0].method for spec in tuned}
    shares = candidates.shared_out(14, candidates.BY_SEED)
    assert sum(shares.values()) == 14
    assert shares[1] > shares[2] > 1


def test_a_chain_goes_on_from_an_encoder_of_the_same_seed() -> None:
    first = [spec.removesuffix("+whitening") for spec in candidates.CHAINS]
    made = candidates.BY_SEED[1]
    assert all(made.index(one) < made.index(chain) for one, chain in zip(first, candidates.CHAINS, strict=True))


def test_no_checkpoint_is_chosen_and_the_encoders_are_kept(tmp_path: Path) -> None:
    how = candidates.Making(tmp_path, "mini", 4, None)
    told = candidates.words(tmp_path, 2, ["mean", "fused"], 3, how)
    assert "--dev" not in told
    assert "--keep" in told
    assert told[told.index("--seeds") + 1] == "2,"


def test_pairs_are_drawn_with_their_grades_and_by_the_seed_alone(tmp_path: Path) -> None:
    path = tmp_path / "own.tsv"
    path.write_text("".join(f"{number % 5}\tfirst {number}\tsecond {number}\n" for number in range(300)))
    every = own_pairs(path)
    some, again, other = (looking.some_pairs(every, 100, seed) for seed in (1, 1, 2))
    (rows,) = some.parts
    assert len(rows) == 100
    assert some == again != other
    assert rows.second is not None
    assert rows.grades is not None
    for first, second, grade in zip(rows.first, rows.second, rows.grades, strict=True):
        number = int(first.split()[1])
        assert (second, grade) == (f"second {number}", number % 5)
    assert looking.some_pairs(every, 300, 1) is every


def _looked(number: int, grade: float | None, error: str | None = None) -> dict[str, Any]:
    """An encoder whose corruptions follow its grade, whose halves go the other way, and whose panel says nothing."""
    own = grade or 0.0
    scores = {"corruptions": own**3, "halves": -own, "panel": 0.5}
    ground = {"grade": grade, "metric": "spearman", "pairs": 9, "pairs_there": 10, "sentences": 20, "scores": scores}
    cosines = np.random.default_rng(number).normal(size=30) + own * np.arange(30)
    facts = {"encoder": f"encoder {number}", "tuned": number % 2 == 0, "dev": own, "error": error}
    return facts | {"grounds": {name: ground | {"cosines": cosines.tolist()} for name in ("sts", "own")}}


def test_correlations_of_every_score_and_who_passes() -> None:
    grades = np.random.default_rng(5).permutation(20) / 20 + 0.1
    looked = [_looked(number, float(grade)) for number, grade in enumerate(grades)]
    looked += [_looked(20, None), _looked(21, 0.5, "not finite")]
    found = correlations.evaluated(looked)
    assert list(found) == ["sts", "own"]
    assert found["sts"]["encoders"] == 20
    assert found["sts"]["tuned"] == 10
    rows = found["own"]["scores"]
    for part in ("spearman", "kendall", "spearman_tuned", "spearman_untuned"):
        assert rows["corruptions"][part] == pytest.approx(1.0)
        assert rows["halves"][part] == pytest.approx(-1.0)
        assert rows["panel"][part] == 0.0
    assert rows["corruptions"]["regret"] == 0.0
    assert rows["halves"]["regret"] == pytest.approx(grades.max() - grades.min())
    assert rows["halves"]["chosen"] == f"encoder {int(np.argmin(grades))}"
    assert "corruptions" in correlations.good_enough(found)
    assert "halves" not in correlations.good_enough(found)
    assert correlations.left_out(looked) == {"encoder 20": "no grade on sts, own", "encoder 21": "not finite"}
    # Labels are shown for comparison, and only where the dev pairs are of the same kind; they never pass as a score.
    assert correlations.LABELLED in found["sts"]["scores"]
    assert correlations.LABELLED not in rows
    assert correlations.LABELLED not in correlations.good_enough(found)


def test_one_bad_ground_is_enough_to_fail() -> None:
    looked = [_looked(number, (number + 1) / 10) for number in range(9)]
    for one in looked:
        one["grounds"]["own"]["grade"] = -one["grounds"]["own"]["grade"]
    found = correlations.evaluated(looked)
    assert correlations.worst(found)["corruptions"] == pytest.approx(-1.0)
    assert correlations.good_enough(found) == []


def test_too_few_encoders_are_refused() -> None:
    with pytest.raises(SystemExit, match="7 encoders to compare, and 8"):
        correlations.evaluated([_looked(number, number / 7) for number in range(7)])


def test_the_tables_have_a_row_for_every_score_and_as_many_cells_as_their_heads() -> None:
    found = correlations.evaluated([_looked(number, (number + 1) / 10) for number in range(16)])
    first, second, third = (part.splitlines() for part in correlations.markdown(found).strip().split("\n\n"))
    for lines in (first, second, third):
        assert len({line.count("|") for line in lines}) == 1
    assert len(second) == len(third) == 2 + len(found["sts"]["scores"])
    assert second[-1].startswith(f"| {correlations.LABELLED} | 1.00 [1.00, 1.00] | 1.00 | 0.0 |  |")
    assert "encoder 15" in correlations.printed(found)
