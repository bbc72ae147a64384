"""How an encoder spreads its embeddings, against plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from selfguide.calibration import spread
from selfguide.calibration.centring import one_sidedness
from selfguide.calibration.spread import GENERAL, Spread, general_sentences
from selfguide.data.resources import demo_sentences
from selfguide.models.encoders import load_encoder
from selfguide.progress import Reporter
from toys import toy_sentences


def made(text: float, general: float, common: float) -> Spread:
    return Spread(np.zeros(2), text, general, common)


def test_the_sentences_of_general_english_are_always_the_same() -> None:
    found = general_sentences()
    assert found == general_sentences()
    assert len(set(found)) == GENERAL
    assert set(found) <= set(demo_sentences())


def test_a_measurement_is_that_of_all_pairs_of_sentences(bert: Path) -> None:
    encoder = load_encoder(bert, pooling="mean", device="cpu")
    text = sorted(set(toy_sentences(30)))
    found = Spread.of(encoder, text, Reporter(quiet=True))
    units = [encoder.encode(part, normalize_embeddings=True).astype(np.float64) for part in (text, general_sentences())]

    def mean_of_pairs(vectors: np.ndarray) -> float:
        cosines = vectors @ vectors.T
        return float((cosines.sum() - np.trace(cosines)) / (len(cosines) * (len(cosines) - 1)))

    assert found.text == pytest.approx(mean_of_pairs(units[0]), abs=1e-5)
    assert found.general == pytest.approx(mean_of_pairs(units[1]), abs=1e-5)
    np.testing.assert_allclose(found.mean, units[0].mean(axis=0), atol=1e-6)
    assert found.common == pytest.approx(one_sidedness(units[0], units[1]), abs=1e-4)
    assert dict(found.scores) == {"mean cosine": min(found.text, found.general), "common": found.common}


@pytest.mark.parametrize(
    ("found", "cone", "said"),
    [
        (made(0.3, 0.4, 0.1), True, "Nothing was to be trained"),
        (made(0.3, 0.1, 0.1), False, "spread well already"),
        (made(0.1, 0.4, 0.1), False, "spread well already"),
        (made(0.3, 0.4, 0.6), False, "hardly tells the sentences"),
    ],
)
def test_a_cone_needs_high_cosines_everywhere_and_a_text_whose_sentences_differ(
    found: Spread, cone: bool, said: str
) -> None:
    assert found.has_cone is cone
    assert said in found.reason_to_stay
    assert (spread.LEAST_COSINE, spread.MOST_COMMON) == (0.2, 0.5)
