"""SG-OPT as a reader of the paper would write it, with padded batches and loops over views and parameters: a baseline."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PlainSelfGuidance(nn.Module):
    """Guide, student and head in the most direct form, with the formulas and defaults of the package."""

    def __init__(self, encoder: Any, temperature: float = 0.01, stay_close: float = 0.1, head_size: int = 4096) -> None:
        super().__init__()
        self.encoder = encoder
        self.student = encoder[0].model
        self.guide = copy.deepcopy(self.student).eval().requires_grad_(False)
        self.student.embeddings.requires_grad_(False)
        width = self.student.config.hidden_size
        self.head = nn.Sequential(nn.Linear(width, head_size), nn.GELU(), nn.Linear(head_size, head_size), nn.GELU())
        for module in self.head:
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        self.temperature, self.stay_close = temperature, stay_close

    def forward(self, sentences: list[str]) -> Tensor:
        """Return the loss of a batch."""
        features = self.encoder.preprocess(sentences)
        device = next(self.head.parameters()).device
        inputs = {
            name: features[name].to(device)
            for name in ("input_ids", "attention_mask", "token_type_ids")
            if name in features
        }
        padding = ~inputs["attention_mask"].bool().unsqueeze(-1)
        with torch.no_grad():
            states = self.guide(**inputs, output_hidden_states=True).hidden_states
            views = [state.masked_fill(padding, -1e9).max(dim=1).values for state in states]
        embeddings = F.normalize(self.head(self.student(**inputs).last_hidden_state[:, 0]), dim=-1)
        projected = [F.normalize(self.head(view), dim=-1) for view in views]
        # In logarithms, because e^(1/0.01) overflows a float.
        logits = torch.stack([embeddings @ view.T / self.temperature for view in projected], dim=-1)
        own = torch.eye(len(sentences), dtype=torch.bool, device=device)
        negatives = logits.masked_fill(own.unsqueeze(-1), float("-inf")).flatten(1).logsumexp(dim=1)
        loss = torch.zeros((), device=device)
        for view in range(len(views)):
            positive = logits[:, :, view].diagonal()
            loss = loss - (positive - torch.logaddexp(positive, negatives)).mean() / len(views)
        distance = torch.zeros((), device=device)
        guide = dict(self.guide.named_parameters())
        for name, parameter in self.student.named_parameters():
            distance = distance + ((parameter - guide[name]) ** 2).sum()
        return loss + self.stay_close * distance
