# SPDX-License-Identifier: Apache-2.0
"""Trains an encoder to see before the model learns to talk: one small classifier per label on its output rows."""

import torch
from torch import nn
from torch.nn import functional as F

from tools.train import data

MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # CLIP's


def normalise(pixels):
    """[n, h, w, 3] uint8 to what encoders read: [n, 3, h, w]."""
    mean, std = (torch.tensor(v, device=pixels.device) for v in (MEAN, STD))
    return ((pixels.float() / 255.0 - mean) / std).permute(0, 3, 1, 2).contiguous()


class Heads(nn.Module):
    """Each classifier attends to the rows with its own query, as a question will later. With `rows_each` it sees only
    that many rows, so that rows without a position have a reason to differ."""

    def __init__(self, width, rows_each=None):
        super().__init__()
        self.rows_each = rows_each
        self.norm = nn.LayerNorm(width)
        self.query = nn.Parameter(torch.randn(len(data.LABELS), width) * width**-0.5)
        self.out = nn.ModuleList(nn.Linear(width, len(classes)) for classes in data.LABELS.values())

    def forward(self, rows):
        """rows [n, r, width] -> logits of each label, [n, classes]."""
        rows = self.norm(rows)
        match = rows @ self.query.T  # [n, r, labels]
        if self.rows_each:
            at = torch.arange(rows.shape[1], device=rows.device)[:, None] // self.rows_each
            match = match.masked_fill(at != torch.arange(len(self.out), device=rows.device), -torch.inf)
        weights = torch.softmax(match, dim=1)
        mixed = torch.einsum("nrl,nrw->lnw", weights, rows)
        return [out(m) for out, m in zip(self.out, mixed)]

    def loss(self, rows, labels):
        """(mean cross-entropy over the labelled pictures, {label: (right, of)})."""
        losses, right = [], {}
        for i, (name, logits) in enumerate(zip(data.LABELS, self(rows))):
            of = labels[:, i]
            known = of >= 0
            losses.append(
                F.cross_entropy(logits.float(), of, ignore_index=-1, reduction="sum") / known.sum().clamp(min=1)
            )
            right[name] = ((logits.argmax(-1) == of) & known).sum(), known.sum()
        return torch.stack(losses).mean(), right
