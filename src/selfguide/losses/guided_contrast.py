"""The loss of adaptation: dropout contrast that stays close to what the encoder knows.

Start with a sentence encoder that is good already. Each sentence of a batch passes through it twice in training mode, and the
two embeddings are contrasted as in SimCSE, through the encoder's own modules and without a head. This spreads the sentences of
the text. A second term keeps their order: the *guide*, the encoder as it was, gives the similarities of the batch's sentences to
one another as soft targets, so that the student moves only where telling the sentences apart asks for it. The guide stays in
evaluation mode and is never trained, so its embeddings are computed once for a text.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from selfguide.augment.dropout import KEEP_DROPOUT
from selfguide.augment.encoding import Features
from selfguide.engine.encode import vector_chunks
from selfguide.files import atomic_path, is_sealed, reserve, seal
from selfguide.losses import functional
from selfguide.losses.base import Preparation, full_precision, single
from selfguide.losses.dropout_contrast import CITATION, DropoutContrastLoss
from selfguide.losses.rules import TEMPERATURE, WEIGHT
from selfguide.options import check

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sentence_transformers import SentenceTransformer

_GUIDE_FILE = "guide.npy"
_TARGETS = "guide_embedding"


class GuidedContrastLoss(DropoutContrastLoss):
    """Contrast two embeddings of each sentence under dropout, and keep the similarities that a guide gives them.

    Formula:
        With c_i and c'_i the two embeddings of sentence i, g_i the guide's, φ(u, v) = exp(cos(u, v) / τ), and with p_ij
        proportional to exp(cos(g_i, g_j) / τ_g) and q_ij to exp(cos(c_i, c'_j) / τ_g) over j ≠ i:

            loss = mean over i of ( −log φ(c_i, c'_i) / Σ_j φ(c_i, c'_j)  +  λ Σ_j p_ij log(p_ij / q_ij) )

    Args:
        model: The SentenceTransformer to be trained; a copy of it as it is now is the guide.
        temperature: τ.
        stay_close: λ, the weight of the guide's similarities; 0 leaves the guide out.
        guide_temperature: τ_g: the smaller, the more the nearest sentences count.
        dropout: Rate of every dropout in the Transformer during training; −1 keeps the encoder's own.
        freeze_layer_0: Do not train the embedding layer.
        gradient_cache: Sentences that pass through the encoder at a time, for batches larger than memory; 0 for all.

    Raises:
        UsageError: An argument is out of range, or the encoder has no dropout.

    Inputs:
        | Texts    | Labels |
        |----------|--------|
        | sentence | none   |

    Relations:
        With ``stay_close=0`` it is :class:`~selfguide.losses.DropoutContrastLoss` without a head.
        :class:`~selfguide.losses.SelfGuidedLoss` takes the layers of its guide as positives; here the guide gives similarities.

    Example:
        ```python
        from datasets import Dataset
        from sentence_transformers import SentenceTransformerTrainer

        import selfguide
        from selfguide.losses import GuidedContrastLoss

        model = selfguide.load_encoder("mini")
        loss = GuidedContrastLoss(model, stay_close=1.0)
        text = Dataset.from_dict({"sentence": ["It rains.", "The train is late.", "She plays the cello."]})
        SentenceTransformerTrainer(model=model, train_dataset=text, loss=loss).train()
        ```

    Reference:
        The contrast: Gao, Yao and Chen, SimCSE: Simple Contrastive Learning of Sentence Embeddings, EMNLP 2021:
        https://arxiv.org/abs/2104.08821. Similarities as targets: Park, Kim, Lu and Cho, Relational Knowledge Distillation,
        CVPR 2019: https://arxiv.org/abs/1904.05068
    """

    citation = CITATION
    config_names = ("temperature", "stay_close", "guide_temperature", "dropout", "freeze_layer_0")

    def __init__(
        self,
        model: SentenceTransformer,
        temperature: float = 0.05,
        stay_close: float = 1.0,
        guide_temperature: float = 0.05,
        dropout: float = KEEP_DROPOUT,
        freeze_layer_0: bool = False,
        gradient_cache: int = 0,
    ) -> None:
        check("stay_close", stay_close, WEIGHT)
        check("guide_temperature", guide_temperature, TEMPERATURE)
        # In a tuple, so that it is neither trained nor saved nor counted as a child of the loss.
        self._guides: tuple[SentenceTransformer, ...] = ()
        guide = copy.deepcopy(model).requires_grad_(False).eval() if stay_close > 0 else None
        super().__init__(
            model,
            temperature,
            head=False,
            dropout=dropout,
            freeze_layer_0=freeze_layer_0,
            gradient_cache=gradient_cache,
        )
        self.stay_close, self.guide_temperature = stay_close, guide_temperature
        self._guides = () if guide is None else (guide,)
        self._targets: NDArray[np.float32] | None = None

    def prepare(self, run: Preparation) -> None:
        """Embed the whole text with the guide, which is not needed afterwards."""
        super().prepare(run)
        if not self._guides or run.text is None or run.columns != 1 or not run.work.is_dir():
            return
        self._guides[0].max_seq_length = self.encoder.max_seq_length
        self._targets = _guide_embeddings(self._guides[0], run)
        self._guides = ()

    def on_host(self, features: dict[str, Any], rows: list[int]) -> dict[str, Any]:
        """Return the batch with the guide's embeddings, where they have been computed."""
        if self._targets is not None:
            features[_TARGETS] = torch.from_numpy(self._targets[rows])
        return features

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch; see the class."""
        self.begin_step()
        features: dict[str, Any] = dict(next(iter(sentence_features)))
        targets = features.pop(_TARGETS, None)
        if targets is None and self._guides:
            targets = self._embedded_by_guide(features)
        pairs = self.pairs(features)
        return self.guided(pairs[:, 0], pairs[:, 1], targets)

    def guided(self, first: Tensor, second: Tensor, guide: Tensor | None) -> Tensor:
        """Compute the loss on embeddings.

        Args:
            first: First embeddings of the sentences (batch, dim).
            second: Second embeddings (batch, dim).
            guide: The guide's embeddings (batch, guide's dim); ``None`` computes the contrast alone.

        Returns:
            The loss.
        """
        with full_precision(first):
            first, second = single(first), single(second)
            loss = self.over_processes(functional.info_nce, first, second, self.temperature)
            if guide is None or not self.stay_close:
                return loss
            return loss + self.stay_close * self._divergence(first, second, single(guide))

    def _divergence(self, first: Tensor, second: Tensor, guide: Tensor) -> Tensor:
        shared = self.shared_batch(first)
        if shared is None:
            return functional.relational_divergence(first, second, guide, self.guide_temperature)
        first, second, guide = shared.gather(first), shared.gather(second), shared.gather(guide)
        share = functional.relational_divergence(first, second, guide, self.guide_temperature, own=shared.own)
        return shared.processes * share

    @torch.no_grad()
    def _embedded_by_guide(self, features: Features) -> Tensor:
        """Embed a batch with the guide, in a script whose trainer does not call :meth:`prepare`."""
        (guide,) = self._guides
        device = features["input_ids"].device
        if guide.device != device:
            guide.to(device)
        return guide(dict(features))["sentence_embedding"].detach()


def _guide_embeddings(guide: SentenceTransformer, run: Preparation) -> NDArray[np.float32]:
    """Embed every sentence of the text once, into a file of the run that a resumed run finds again."""
    assert run.text is not None
    path, shape = run.work / _GUIDE_FILE, (len(run.text), int(guide.get_embedding_dimension() or 0))
    if not (run.resume and is_sealed(path)):
        guide.default_prompt_name = None  # the text has its prompts already
        with atomic_path(path) as temporary:
            found = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
            reserve(temporary)
            start = 0
            with run.reporter.bar("the guide reads", shape[0], "sentences") as advance:
                for chunk, vectors in vector_chunks(guide, run.text.rows):
                    found[start : start + len(chunk)] = vectors
                    start += len(chunk)
                    advance(len(chunk), "")
            found.flush()
        seal(path)
    return np.load(path, mmap_mode="r")
