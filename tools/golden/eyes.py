# SPDX-License-Identifier: Apache-2.0
"""What the tools that record vision encoders share: random weights, named intermediates, a conversation."""

import numpy as np
import torch


def randomise(model, seed, wide=("q_proj", "k_proj", "qkv")):
    """Weights that make every part matter: norms about 1, biases, matrices that keep the size of their input; those
    with a name of `wide`, which make the scores of attention, twice as large. Vectors that scale what a block adds are
    about one half."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if ("norm" in name or "ln_q" in name) and name.endswith("weight"):
                p.copy_(1.0 + 0.2 * torch.randn(p.shape, generator=g))
            elif "lambda_" in name:
                p.copy_(0.5 + 0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            else:
                factor = 2.0 if any(part in name for part in wide) else 1.0
                p.copy_(factor / p[0].numel() ** 0.5 * torch.randn(p.shape, generator=g))
    return model.eval()


class Watch:
    """Collects inputs and results of modules as [rows, columns], under names."""

    def __init__(self):
        self.seen, self.hooks = {}, []

    def keep(self, name, module, before=False):
        def hook(m, inputs, output=None):
            value = inputs[0] if before else output[0] if isinstance(output, tuple) else output
            self.seen[name] = value.reshape(-1, value.shape[-1]).detach().numpy().copy()

        self.hooks.append(module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook))

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        for hook in self.hooks:
            hook.remove()

    def split(self, name, parts):
        """Replaces an entry by its columns in equal parts."""
        value = self.seen.pop(name)
        for part, columns in zip(parts, np.split(value, len(parts), axis=1)):
            self.seen[part] = columns


def words(rng, n, first, vocab):
    """Tokens that are no specials."""
    return rng.integers(first, vocab, n).tolist()
