"""A small Glow over sentence embeddings: an invertible map with a known log-determinant, trained towards a Gaussian.

:mod:`selfguide.methods.flow` describes the algorithm. A flow has ``levels`` of ``depth`` steps each; after every level but
the last, half of the dimensions are split off as final. A step is

    actnorm      y = (x + b) · exp(c s)                           b, s: one value a channel; c = 3 speeds s up
    mixing       y = x reversed, or y = W x                       W = P L (U + diag(± exp(log s))), P and the signs fixed
    coupling     y₁ = x₁,  y₂ = x₂ + m(x₁)                        m: a network of two hidden layers that starts as 0

and the log-determinant of the flow is the sum over steps of c Σ s and, for W, Σ log s: coupling preserves volume.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from sentence_transformers.base.modules import Module
from torch import Tensor, nn

from selfguide.errors import UsageError
from selfguide.options import OneOf, check

MIXINGS = ("reverse", "linear")
LOG_SCALE_FACTOR = 3.0
LOG_TWO_PI = 1.8378770664093453


class Flow(Module):
    """An invertible map of sentence embeddings, as a module after a pooling.

    Args:
        embedding_dimension: Dimension of the embeddings, before and after.
        levels: Number of levels; the embedding is halved after each but the last.
        depth: Steps in each level.
        width: Hidden size of the coupling networks.
        mixing: ``"reverse"`` (the order of channels is reversed) or ``"linear"`` (a learned matrix, LU-parametrised).

    Raises:
        UsageError: There is no such mixing, or the embedding is too small for so many levels.
    """

    config_keys: list[str] = ["embedding_dimension", "levels", "depth", "width", "mixing"]  # noqa: RUF012

    def __init__(
        self, embedding_dimension: int, levels: int = 3, depth: int = 3, width: int = 32, mixing: str = "reverse"
    ) -> None:
        super().__init__()
        self.embedding_dimension = embedding_dimension
        self.levels = levels
        self.depth = depth
        self.width = width
        self.mixing = mixing
        check("mixing", mixing, OneOf(*MIXINGS))
        self.widths = [embedding_dimension]
        for _ in range(levels - 1):
            self.widths.append(_first_half(self.widths[-1]))
        if self.widths[-1] < 2:
            raise UsageError(
                f"An embedding of dimension {embedding_dimension} cannot be halved {levels - 1} times and coupled; "
                f"choose fewer levels than {levels}."
            )
        self.blocks = nn.ModuleList(_Level(channels, depth, width, mixing) for channels in self.widths)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Replace ``sentence_embedding`` by its image.

        Args:
            features: With ``sentence_embedding``.
            **kwargs: Not used.

        Returns:
            The features.
        """
        features["sentence_embedding"] = self.transform(features["sentence_embedding"])[0]
        return features

    def transform(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Map embeddings to latents.

        Args:
            vectors: x, (batch, dim).

        Returns:
            z, (batch, dim), and log |det ∂z/∂x|, which is the same for every x.
        """
        final: list[Tensor] = []
        log_det = vectors.new_zeros(())
        for level, block in enumerate(self.blocks):
            vectors, change = block(vectors)
            log_det = log_det + change
            if level < self.levels - 1:
                vectors, split_off = _halves(vectors)
                final.append(split_off)
        return torch.cat([*final, vectors], dim=-1), log_det

    def inverse(self, latents: Tensor) -> Tensor:
        """Map latents z, (batch, dim), back to embeddings x.

        Args:
            latents: z.

        Returns:
            x, (batch, dim).
        """
        sizes = [wide - narrow for wide, narrow in pairwise(self.widths)]
        *final, vectors = torch.split(latents, [*sizes, self.widths[-1]], dim=-1)
        for level in reversed(range(self.levels)):
            if level < self.levels - 1:
                vectors = torch.cat([vectors, final[level]], dim=-1)
            vectors = self.blocks[level].inverse(vectors)  # type: ignore[operator]  # torch types items loosely
        return vectors

    def negative_log_likelihood(self, vectors: Tensor) -> Tensor:
        """Return −log p(x) / d of each embedding: (−log N(z; 0, I) − log |det ∂z/∂x|) / d, in nats per dimension.

        Args:
            vectors: x, (batch, dim).
        """
        latents, log_det = self.transform(vectors)
        gaussian = -0.5 * (latents.square() + LOG_TWO_PI).sum(dim=-1)
        return -(gaussian + log_det) / self.embedding_dimension

    @torch.no_grad()
    def initialise(self, vectors: Tensor) -> None:
        """Set every actnorm so that its output has mean 0 and variance 1 on these embeddings."""
        norms = [module for module in self.modules() if isinstance(module, _ActNorm)]
        for norm in norms:
            norm.starting = True
        try:
            self.transform(vectors)
        finally:
            for norm in norms:
                norm.starting = False

    def get_embedding_dimension(self) -> int:
        """Return the embedding dimension, which the flow preserves."""
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **kwargs: Any) -> None:
        """Write configuration and weights to a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        **kwargs: Any,
    ) -> Flow:
        """Read what :meth:`save` wrote; arguments are those of sentence-transformers' modules.

        Returns:
            The flow.
        """
        where: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_folder": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        flow = cls(**cls.load_config(model_name_or_path, **where))
        cls.load_torch_weights(model_name_or_path, model=flow, **where)
        return flow.requires_grad_(False).eval()


def _first_half(channels: int) -> int:
    """Return the size of the first half, which is the larger one of an odd number of channels."""
    return channels - channels // 2


def _halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    half = _first_half(vectors.shape[-1])
    return vectors[..., :half], vectors[..., half:]


class _Level(nn.Module):
    """Consecutive steps at one width."""

    def __init__(self, channels: int, depth: int, width: int, mixing: str) -> None:
        super().__init__()
        self.steps = nn.ModuleList(_Step(channels, width, mixing) for _ in range(depth))

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        log_det = vectors.new_zeros(())
        for step in self.steps:
            vectors, change = step(vectors)
            log_det = log_det + change
        return vectors, log_det

    def inverse(self, vectors: Tensor) -> Tensor:
        for step in reversed(self.steps):
            vectors = step.inverse(vectors)  # type: ignore[operator]
        return vectors


class _Step(nn.Module):
    """Actnorm, mixing, additive coupling."""

    def __init__(self, channels: int, width: int, mixing: str) -> None:
        super().__init__()
        self.norm = _ActNorm(channels)
        self.mix = _Linear(channels) if mixing == "linear" else _Reverse()
        self.shift = _ShiftNetwork(_first_half(channels), width, channels // 2)

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        vectors, scaled = self.norm(vectors)
        vectors, mixed = self.mix(vectors)
        first, second = _halves(vectors)
        return torch.cat([first, second + self.shift(first)], dim=-1), scaled + mixed

    def inverse(self, vectors: Tensor) -> Tensor:
        first, second = _halves(vectors)
        vectors = torch.cat([first, second - self.shift(first)], dim=-1)
        return self.norm.inverse(self.mix.inverse(vectors))


class _ActNorm(nn.Module):
    """A shift and a scale for each channel, initialised on data."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))
        self.log_scale = nn.Parameter(torch.zeros(channels))
        self.starting = False

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        if self.starting:
            spread = vectors.std(dim=0, correction=0).clamp(min=1e-6)
            self.bias.copy_(-vectors.mean(dim=0))
            self.log_scale.copy_(-spread.log() / LOG_SCALE_FACTOR)
        log_scale = LOG_SCALE_FACTOR * self.log_scale
        return (vectors + self.bias) * log_scale.exp(), log_scale.sum()

    def inverse(self, vectors: Tensor) -> Tensor:
        return vectors * (-LOG_SCALE_FACTOR * self.log_scale).exp() - self.bias


class _Reverse(nn.Module):
    """The channels in reverse order: the next coupling moves the other half."""

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        return vectors.flip(-1), vectors.new_zeros(())

    def inverse(self, vectors: Tensor) -> Tensor:
        return vectors.flip(-1)


class _Linear(nn.Module):
    """An invertible matrix W = P L (U + diag(sign · exp(log_size))), initially a random rotation (Glow's 1×1 convolution)."""

    signs: Tensor
    order: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        rotation, _ = torch.linalg.qr(torch.randn(channels, channels, dtype=torch.float64))
        permutation, lower, upper = torch.linalg.lu(rotation)
        sizes = upper.diagonal()
        self.register_buffer("order", permutation.argmax(dim=1))  # row i of P L U is row order[i] of L U
        self.register_buffer("signs", sizes.sign().float())
        self.lower = nn.Parameter(lower.tril(-1).float())
        self.upper = nn.Parameter(upper.triu(1).float())
        self.log_size = nn.Parameter(sizes.abs().log().float())

    def _factors(self) -> tuple[Tensor, Tensor]:
        identity = torch.eye(len(self.order), dtype=self.lower.dtype, device=self.lower.device)
        return self.lower.tril(-1) + identity, self.upper.triu(1) + torch.diag(self.signs * self.log_size.exp())

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = self._factors()
        return vectors @ (lower @ upper)[self.order].T, self.log_size.sum()

    def inverse(self, vectors: Tensor) -> Tensor:
        lower, upper = self._factors()
        unordered = torch.empty_like(vectors)
        unordered[..., self.order] = vectors
        middle = torch.linalg.solve_triangular(lower, unordered.T, upper=False, unitriangular=True)
        return torch.linalg.solve_triangular(upper, middle, upper=True).T


class _ShiftNetwork(nn.Module):
    """m of the coupling: two hidden layers with actnorm and ReLU, and an output layer initialised to 0."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(inputs, width, bias=False), nn.Linear(width, width, bias=False)])
        for layer in self.hidden:
            nn.init.normal_(layer.weight, std=0.05)  # type: ignore[arg-type]
        self.norms = nn.ModuleList([_ActNorm(width), _ActNorm(width)])
        self.last = nn.Linear(width, outputs)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        self.log_scale = nn.Parameter(torch.zeros(outputs))

    def forward(self, vectors: Tensor) -> Tensor:
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            vectors = norm(layer(vectors))[0].relu()
        return self.last(vectors) * (LOG_SCALE_FACTOR * self.log_scale).exp()
