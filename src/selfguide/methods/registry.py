"""What methods there are. Importing this imports no method and no torch, so that listing them is quick."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from selfguide.errors import UsageError

if TYPE_CHECKING:
    from selfguide.methods.base import Method

Family = Literal["pooling", "calibration", "tuning"]


@dataclass(frozen=True)
class MethodEntry:
    """One line of the registry."""

    name: str
    family: Family
    summary: str
    implementation: str
    """``module:Class`` inside :mod:`selfguide.methods`."""
    needs_labels: bool = False
    inference_cost: str = "one forward pass"
    reference: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Options that make this entry what it is; the user cannot change them."""


_KIM = "Kim, Yoo and Lee, ACL 2021"
_CARLSSON = "Carlsson et al., ICLR 2021"
_YAN = "Yan et al., ACL 2021"

_ARORA = "Arora, Liang and Ma, ICLR 2017"
_LOOK_UP = "a table look-up"

METHODS: tuple[MethodEntry, ...] = (
    MethodEntry(
        "bow",
        "pooling",
        "bag of word pieces with random vectors, weighted by frequency: the floor",
        "bow:BagOfWords",
        inference_cost=_LOOK_UP,
        reference="Wieting and Kiela, ICLR 2019; " + _ARORA,
    ),
    MethodEntry(
        "glove",
        "pooling",
        "mean of word vectors from a file (GloVe, word2vec, fastText)",
        "glove:Glove",
        inference_cost=_LOOK_UP,
        reference="Pennington, Socher and Manning, EMNLP 2014",
    ),
    MethodEntry(
        "cls",
        "pooling",
        "the pre-trained encoder's [CLS] vector",
        "poolings:PlainPooling",
        reference="Devlin et al., NAACL 2019",
        preset={"pooling": "cls"},
    ),
    MethodEntry(
        "mean",
        "pooling",
        "the mean of the pre-trained encoder's tokens",
        "poolings:PlainPooling",
        reference="Reimers and Gurevych, EMNLP 2019",
        preset={"pooling": "mean"},
    ),
    MethodEntry(
        "max",
        "pooling",
        "the maximum of the pre-trained encoder's tokens, number by number",
        "poolings:PlainPooling",
        reference="Reimers and Gurevych, EMNLP 2019",
        preset={"pooling": "max"},
    ),
    MethodEntry(
        "last2",
        "pooling",
        "the mean of the tokens of the last two layers",
        "poolings:PlainPooling",
        reference="Li et al., EMNLP 2020",
        preset={"pooling": "last2", "layer": -1},
    ),
    MethodEntry(
        "first-last",
        "pooling",
        "the mean of the tokens of the first and the last layer",
        "poolings:PlainPooling",
        reference="Su et al., 2021",
        preset={"pooling": "first-last", "layer": -1},
    ),
    MethodEntry(
        "wk",
        "pooling",
        "layers and tokens weighted by how a token's vector changes through the layers (SBERT-WK)",
        "wk:WK",
        inference_cost="one forward pass and a QR for every token",
        reference="Wang and Kuo, TASLP 2020",
    ),
    MethodEntry(
        "sif",
        "calibration",
        "frequency-weighted mean of a layer's tokens, whitened on the text",
        "sif:Sif",
        inference_cost="one forward pass and a small matrix product",
        reference=_ARORA,
    ),
    MethodEntry(
        "whitening",
        "calibration",
        "vectors centred and with the identity as covariance, by the text's statistics",
        "whitening:Whitening",
        inference_cost="one forward pass and a small matrix product",
        reference="Su et al., 2021",
    ),
    MethodEntry(
        "flow",
        "calibration",
        "an invertible map, learned on the text, that makes the vectors Gaussian (BERT-flow)",
        "flow:FlowMethod",
        inference_cost="one forward pass and a small flow",
        reference="Li et al., EMNLP 2020",
    ),
    MethodEntry(
        "sg-opt",
        "tuning",
        "self-guidance with the optimised objective: every layer's view is a positive (L_opt3)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "sg-opt"},
    ),
    MethodEntry(
        "sg",
        "tuning",
        "self-guidance with NT-Xent over embeddings and one random view each (L_base)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "sg"},
    ),
    MethodEntry(
        "opt1",
        "tuning",
        "as sg, with the embeddings alone as anchors (L_opt1; a step of the paper's ablation)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "opt1"},
    ),
    MethodEntry(
        "opt2",
        "tuning",
        "as opt1, without repulsion between embeddings (L_opt2; a step of the paper's ablation)",
        "self_guided:SelfGuided",
        reference=_KIM,
        preset={"objective": "opt2"},
    ),
    MethodEntry(
        "simcse",
        "tuning",
        "the same sentence twice through dropout (contrast over the batch)",
        "simcse:SimCSE",
        reference="Gao, Yao and Chen, EMNLP 2021",
    ),
    MethodEntry(
        "consert",
        "tuning",
        "two copies changed at the embedding layer: tokens shuffled, dimensions cut (NT-Xent)",
        "consert:Consert",
        reference=_YAN,
    ),
    MethodEntry(
        "mirror",
        "tuning",
        "a copy with a few characters masked, and dropout (Mirror-BERT; NT-Xent)",
        "mirror:Mirror",
        reference="Liu et al., EMNLP 2021",
    ),
    MethodEntry(
        "clear",
        "tuning",
        "two rewritten copies (deletion, reordering, substitution) beside masked-language modelling (NT-Xent)",
        "clear:Clear",
        reference="Wu et al., 2020",
    ),
    MethodEntry(
        "ct",
        "tuning",
        "two encoders from one start agree about the same sentence, and about no other (Contrastive Tension)",
        "ct:ContrastiveTension",
        reference=_CARLSSON,
    ),
    MethodEntry(
        "ct-in-batch",
        "tuning",
        "as ct, with the whole batch as negatives and a learnt scale",
        "ct:ContrastiveTensionInBatch",
        reference=_CARLSSON + "; sentence-transformers",
    ),
    MethodEntry(
        "is-bert",
        "tuning",
        "mutual information between a sentence's vector and its phrases, through convolutions (IS-BERT)",
        "is_bert:IsBert",
        inference_cost="one forward pass and three small convolutions",
        reference="Zhang et al., EMNLP 2020",
    ),
    MethodEntry(
        "tsdae",
        "tuning",
        "a decoder writes the sentence again from the vector of a damaged copy",
        "tsdae:Tsdae",
        reference="Wang, Reimers and Gurevych, Findings of EMNLP 2021",
    ),
    MethodEntry(
        "fused",
        "tuning",
        "two views in one vector: the tuned one and the frequency-weighted, whitened embedding layer (ours, not in the papers)",
        "fused:Fused",
        inference_cost="one forward pass and a small matrix product",
        reference="builds on simcse, sif and whitening",
    ),
    MethodEntry(
        "bt",
        "tuning",
        "a sentence and its back-translation, from a file, two models or Apertium (NT-Xent, or CERT's queue)",
        "bt:BackTranslation",
        reference="Fang and Xie, 2020; " + _KIM,
    ),
    MethodEntry(
        "sg-opt+bt",
        "tuning",
        "sg-opt with the sentence's back-translation as a further positive",
        "sg_opt_bt:SelfGuidedTranslation",
        reference=_KIM,
        preset={"objective": "sg-opt"},
    ),
    MethodEntry(
        "sbert-nli",
        "tuning",
        "classification of labelled pairs: entailment, neutral or contradiction (SBERT)",
        "sbert_nli:SbertNli",
        needs_labels=True,
        reference="Reimers and Gurevych, EMNLP 2019",
    ),
    MethodEntry(
        "consert-joint",
        "tuning",
        "classification of labelled pairs, and consert's contrast on the same pairs",
        "consert_supervised:ConsertJoint",
        needs_labels=True,
        reference=_YAN,
    ),
    MethodEntry(
        "consert-sup-unsup",
        "tuning",
        "classification of labelled pairs, then consert on the text",
        "consert_supervised:ConsertSupUnsup",
        needs_labels=True,
        reference=_YAN,
    ),
    MethodEntry(
        "consert-joint-unsup",
        "tuning",
        "as consert-joint, then consert on the text",
        "consert_supervised:ConsertJointUnsup",
        needs_labels=True,
        reference=_YAN,
    ),
    MethodEntry(
        "infersent",
        "tuning",
        "an LSTM over word vectors from a file, trained to classify labelled pairs (InferSent)",
        "infersent:InferSent",
        needs_labels=True,
        inference_cost="one pass of a small LSTM",
        reference="Conneau et al., EMNLP 2017",
    ),
)


def entry(name: str) -> MethodEntry:
    """The registry's line for a method's name."""
    for candidate in METHODS:
        if candidate.name == name:
            return candidate
    names = [candidate.name for candidate in METHODS]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UsageError(f"There is no method {name!r}.{hint} `selfguide methods` lists them: {', '.join(names)}.")


def method_class(name: str) -> type[Method]:
    """The class that implements a method (imports it)."""
    module, _, attribute = entry(name).implementation.partition(":")
    return getattr(import_module(f"selfguide.methods.{module}"), attribute)


def make(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """A method with its options checked: unknown ones are refused by name."""
    return method_class(name)(entry(name), dict(options or {}))
