# SPDX-License-Identifier: Apache-2.0
"""A pot for the decoders of transformers: a cache of fixed size for streams without end.

    cache = weir.PotCache(model, pot=256, policy="streaming_llm")
    cache.read(tokenizer(book)["input_ids"])
    print(tokenizer.decode(cache.generate(max_tokens=40)))

What is forgotten is freed, not masked. Keys are stored without their rotation, and a token's position is its slot, as
in the engine: renumbering after a selection is exact however often it happens.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

POLICIES = ("streaming_llm", "inf_mllm", "infinipot")
CATALYST = "\n\nSummarize the text above and point out what matters most in it."


class _Rotation:
    """Rotates vectors [..., n, head_dim] to other positions, as rotary embeddings of halves do."""

    def __init__(self, inverse_frequencies: torch.Tensor) -> None:
        self.frequencies = inverse_frequencies.detach().to(torch.float32)

    def __call__(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        frequencies = self.frequencies.to(x.device)
        angles = positions.to(x.device, torch.float32)[..., None] * frequencies
        cos, sin = angles.cos(), angles.sin()
        half = frequencies.shape[0]
        a, b, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
        rotated = torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)
        return torch.cat([rotated, rest], dim=-1) if rest.shape[-1] else rotated


def _rotates_halves(rotary: Any) -> bool:
    """Whether the model rotates as _Rotation does, and not neighbouring elements, or in a way of its own."""
    apply = getattr(sys.modules[type(rotary).__module__], "apply_rotary_pos_emb", None)
    if apply is None:
        return False
    frequencies = rotary.inv_freq
    x = torch.linspace(-1, 1, 4 * len(frequencies), device=frequencies.device).reshape(1, 1, 2, -1)
    positions = torch.tensor([[1, 3]], device=frequencies.device)
    try:
        cos, sin = rotary(x, positions)
        rotated = apply(x, x, cos, sin)[0]
    except (TypeError, ValueError, RuntimeError, IndexError):
        return False
    expected = _Rotation(frequencies)(x, positions[0]) * getattr(rotary, "attention_scaling", 1.0)
    return bool(rotated.shape == expected.shape and torch.allclose(rotated.float(), expected, atol=1e-4))


class PotLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is not typed
    """Keys and values of one layer, [1, n_kv_heads, n, head_dim]; keys without rotation."""

    is_sliding = False

    def __init__(self, rotate: _Rotation) -> None:
        super().__init__()
        self.rotate = rotate
        self.keys: Any = None
        self.values: Any = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds tokens, which transformers has rotated to the positions behind the held ones. Returns everything,
        rotated."""
        if key_states.shape[0] != 1:
            raise ValueError(f"a pot holds one stream, not a batch of {key_states.shape[0]}")
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        held, n = self.get_seq_length(), key_states.shape[-2]
        plain = self.rotate(key_states, -torch.arange(held, held + n))
        self.keys = torch.cat([self.keys, plain], dim=-2)
        self.values = torch.cat([self.values, value_states], dim=-2)
        # The new ones as they came, so that a pot that never forgot gives the bits of a plain cache.
        rotated = self.rotate(self.keys[..., :held, :], torch.arange(held))
        return torch.cat([rotated, key_states], dim=-2), self.values

    def keep(self, slots: torch.Tensor) -> None:
        """slots: [n_kv_heads, n_keep], ascending in each head. The memory of the others is freed."""
        at = slots.to(self.keys.device)[None, :, :, None]
        self.keys = self.keys.gather(2, at.expand(-1, -1, -1, self.keys.shape[-1]))
        self.values = self.values.gather(2, at.expand(-1, -1, -1, self.values.shape[-1]))

    def drop_last(self, n: int) -> None:
        """Removes the newest n tokens."""
        left = self.get_seq_length() - n
        self.keys, self.values = self.keys[..., :left, :], self.values[..., :left, :]

    @property
    def n_kv_heads(self) -> int:
        """Layers of one model may differ in it."""
        return int(self.keys.shape[1])

    def get_seq_length(self) -> int:
        """Tokens held: the next one's position."""
        return int(self.keys.shape[-2]) if self.is_initialized else 0

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        return -1

    def reset(self) -> None:
        self.keys = self.values = None
        self.is_initialized = False


class PotCache(Cache):  # type: ignore[misc]
    """A cache that holds at most `pot` tokens of one stream, for a decoder of transformers with rotary positions.

    read() takes any number of tokens and makes room before each chunk; generate() continues greedily. Both feed the
    model with positions inside the pot. Do not pass the cache to model.generate(): that counts positions along the
    stream.

    policy: "streaming_llm" (the first `sinks` tokens and the newest), "inf_mllm" (the newest `recent`, and what the
    last `recent` rows attend to, with the penalty `bias` on age) or "infinipot" (of `ratio` of the pot the share
    `alpha` with the least likely tokens, the rest by the attention of the catalyst). The last two need attention
    weights: a model that was loaded with attn_implementation="eager". catalyst: token ids that vote; they are read and
    removed again.
    """

    def __init__(
        self,
        model: Any,
        *,
        pot: int,
        policy: str = "streaming_llm",
        chunk: int = 0,
        sinks: int = 4,
        recent: int = 64,
        bias: float = 1e-4,
        alpha: float = 0.5,
        ratio: float = 0.5,
        catalyst: Sequence[int] = (),
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"no policy is called {policy!r} here; there are {', '.join(POLICIES)}")
        config = model.config.get_text_config(decoder=True)
        windowed = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
        kinds = set(getattr(config, "layer_types", None) or ["sliding_attention" if windowed else "full_attention"])
        if kinds != {"full_attention"}:
            raise ValueError(f"a pot needs layers of full attention; this model has {', '.join(sorted(kinds))}")
        rotary = [module for name, module in model.named_modules() if name.endswith("rotary_emb")]
        if not rotary or not hasattr(rotary[0], "inv_freq"):
            raise ValueError("a pot needs a model with rotary positions: this one has no rotary_emb")
        if getattr(rotary[0], "rope_type", "default") in ("dynamic", "longrope"):
            raise ValueError("a pot needs rotary positions whose frequencies do not depend on the length")
        if not _rotates_halves(rotary[0]):
            raise ValueError(
                "a pot needs rotary positions that pair the halves of a head; this model rotates otherwise"
            )
        if not all(getattr(config, "no_rope_layers", None) or [1]):
            raise ValueError("a pot needs rotary positions in every layer; some of this model's have none")
        if getattr(config, "num_kv_shared_layers", None):
            raise ValueError("a pot needs keys and values of their own in every layer; some of this model's share them")
        votes = policy != "streaming_llm"
        if votes and config._attn_implementation != "eager":
            raise ValueError(f'{policy} reads attention weights: load the model with attn_implementation="eager"')
        if policy == "infinipot" and not catalyst and alpha < 1:
            raise ValueError("infinipot needs catalyst, the token ids of a text that votes")
        self.votes_by_probe = policy == "infinipot" and alpha < 1
        self.n_slots = pot - (len(catalyst) if self.votes_by_probe else 0)
        if self.n_slots < sinks + 2:
            raise ValueError(f"a pot of {pot} tokens is too small")
        rotate = _Rotation(rotary[0].inv_freq)
        super().__init__(layers=[PotLayer(rotate) for _ in range(config.num_hidden_layers)])
        self.model, self.policy = model, policy
        self.pot, self.sinks, self.recent, self.bias = pot, sinks, recent, bias
        self.alpha, self.ratio, self.catalyst = alpha, ratio, list(catalyst)
        # As the engine: a chunk must not replace the whole pot.
        self.chunk = min(chunk or min(pot // 4, 256), self.n_slots // 2)
        self.seen = self.selections = 0
        self._logits: torch.Tensor | None = None  # of the next token
        self._nll: list[torch.Tensor] = []  # of each layer [n_kv_heads, n], of what its heads hold
        self._votes: list[torch.Tensor] = []  # of each layer [n], the sum over the rows that voted, the heads' mean
        self._n_rows = self._n_unscored = 0

    # ---- reading and writing

    @property
    def held(self) -> int:
        """Tokens in the pot."""
        return int(self.layers[0].get_seq_length())

    def read(self, ids: Any) -> torch.Tensor:
        """Reads token ids, of any number; returns the logits of the next token, [n_vocab]. The last of them end a
        prompt."""
        left = torch.as_tensor(ids, dtype=torch.long).reshape(-1).to(self.model.device)
        with torch.no_grad():
            while len(left):
                n = self._make_room(len(left))
                self._forward(left[:n], n_after=len(left) - n, generated=False)
                left = left[n:]
        if self._logits is None:
            raise ValueError("nothing was read yet")
        return self._logits

    def generate(self, *, max_tokens: int, stop: Sequence[int] = ()) -> list[int]:
        """The most likely token, again and again, until one of `stop` comes or there are max_tokens."""
        out: list[int] = []
        while len(out) < max_tokens:
            if self._logits is None:
                raise ValueError("nothing was read yet")
            token = int(self._logits.argmax())
            if token in stop:
                break
            out.append(token)
            with torch.no_grad():
                self._make_room(1)
                self._forward(torch.tensor([token], device=self.model.device), n_after=0, generated=True)
        return out

    def reset(self) -> None:
        """Forgets everything."""
        for layer in self.layers:
            layer.reset()
        self.seen = self.selections = self._n_rows = self._n_unscored = 0
        self._logits, self._nll, self._votes = None, [], []

    def _forward(self, ids: torch.Tensor, *, n_after: int, generated: bool) -> None:
        held, n = self.held, len(ids)
        begin = self._voting_rows(n, n_after, generated)
        out = self.model(
            input_ids=ids[None],
            past_key_values=self,
            use_cache=True,
            position_ids=torch.arange(held, held + n, device=ids.device)[None],
            output_attentions=begin is not None,
        )
        if self.policy == "infinipot" and self.alpha > 0:
            self._note_likelihoods(ids, out.logits[0])
        before = [torch.cat([votes, votes.new_zeros(n)]) for votes in self._votes]
        if begin is None:
            self._votes, self._n_unscored = before, self._n_unscored + n
        else:
            votes = [weights[0, :, begin:].float().sum(1).mean(0) for weights in out.attentions]
            # A prompt that ends in a short chunk: its rows are added to those that voted just before.
            adds = not generated and n_after + n < self.recent and self._n_unscored == 0 and self._n_rows > 0
            adds = adds and self._n_rows + n <= 2 * self.recent
            self._votes = [old + new for old, new in zip(before, votes)] if adds else votes
            self._n_rows, self._n_unscored = n - begin + (self._n_rows if adds else 0), 0
        self._logits = out.logits[0, -1].float()
        self.seen += n

    def _voting_rows(self, n: int, n_after: int, generated: bool) -> int | None:
        """The first row of a chunk that votes for inf_mllm; None: no row does."""
        if self.policy != "inf_mllm":
            return None
        near_end = not generated and n_after < self.recent
        selects_next = self.n_slots - self.held - n < (1 if n_after == 0 else self.chunk)
        if not near_end and not selects_next:
            return None
        rows = self.recent - (n_after if near_end and not selects_next else 0)
        return n - min(n, rows)

    def _note_likelihoods(self, ids: torch.Tensor, logits: torch.Tensor) -> None:
        before = logits[:-1].float()
        first = torch.tensor([torch.inf], device=logits.device)
        if self._logits is not None:
            before = torch.cat([self._logits[None].to(before), before])
            first = first[:0]
        targets = ids[len(ids) - len(before) :]
        nll = torch.cat([first, torch.nn.functional.cross_entropy(before, targets, reduction="none")])
        new = [nll.cpu().expand(layer.n_kv_heads, -1) for layer in self.layers]
        self._nll = [torch.cat(both, dim=-1) for both in zip(self._nll, new)] if self._nll else new

    # ---- selections

    def _make_room(self, n_left: int) -> int:
        """Frees slots for the next chunk, and says how long it is."""
        if self.policy == "infinipot":  # a pot that is completely full is distilled
            if self.held >= self.n_slots:
                self._select(min(self.n_slots - 1, max(1, _half_up(self.ratio * self.n_slots))))
            return min(self.chunk, n_left, self.n_slots - self.held)
        n = min(self.chunk, n_left)
        if self.n_slots - self.held < n:
            floor = self.sinks + 1 if self.policy == "streaming_llm" else 1
            self._select(min(self.n_slots - n, max(floor, self.n_slots - max(n, self.n_slots // 16))))
        return n

    def _select(self, n_keep: int) -> None:
        n = self.held
        if self.policy == "streaming_llm":
            keeps = [_head_and_tail(n, n_keep, self.sinks)] * len(self.layers)
        elif self.policy == "inf_mllm":
            keeps = [self._by_votes(votes.cpu(), n_keep) for votes in self._votes]
        else:
            votes = self._probe() if self.votes_by_probe else [None] * len(self.layers)
            keeps = [self._distilled(layer, one, n, n_keep) for layer, one in enumerate(votes)]
        for i, (layer, keep) in enumerate(zip(self.layers, keeps)):
            heads = keep.expand(layer.n_kv_heads, -1) if keep.ndim == 1 else keep
            layer.keep(heads)
            if self._votes:
                self._votes[i] = self._votes[i][keep.to(self._votes[i].device)]
        self._nll = [nll.gather(1, keep) for nll, keep in zip(self._nll, keeps)]
        self._n_unscored = min(self._n_unscored, n_keep)
        self.selections += 1

    def _by_votes(self, votes: torch.Tensor, n_keep: int) -> torch.Tensor:
        n = len(votes)
        recent = max(self.recent if n_keep >= self.recent else n_keep // 2, min(self._n_unscored, n_keep // 2))
        n_candidates = n - recent
        age = torch.arange(n_candidates - 1, -1, -1, dtype=torch.float32)
        ranked = votes[:n_candidates] / max(1, self._n_rows) - self.bias * age / n_candidates
        best = _best(ranked, n_keep - recent)
        return torch.cat([best, torch.arange(n_candidates, n)])

    def _probe(self) -> list[torch.Tensor]:
        """How much the catalyst's rows attend to every slot: [n_kv_heads, n] of each layer."""
        held, n = self.held, len(self.catalyst)
        out = self.model(
            input_ids=torch.tensor([self.catalyst], device=self.model.device),
            past_key_values=self,
            use_cache=True,
            position_ids=torch.arange(held, held + n, device=self.model.device)[None],
            output_attentions=True,
        )
        for layer in self.layers:
            layer.drop_last(n)
        votes = []
        for layer, weights in zip(self.layers, out.attentions):  # [1, n_heads, n, held + n]
            rows = weights[0, :, :, :held].float().sum(1)
            votes.append(rows.reshape(layer.n_kv_heads, -1, held).mean(1).cpu())
        return votes

    def _distilled(self, layer: int, votes: torch.Tensor | None, n: int, n_keep: int) -> torch.Tensor:
        n_novel = _half_up(self.alpha * n_keep) if votes is not None else n_keep
        out = []
        for head in range(self.layers[layer].n_kv_heads):
            keep = torch.zeros(n, dtype=torch.bool)
            if self._nll:
                keep[_best(self._nll[layer][head], n_novel)] = True
            if votes is not None:
                free = votes[head].masked_fill(keep, -torch.inf)
                keep[_best(free, n_keep - int(keep.sum()))] = True
            out.append(keep.nonzero()[:, 0])
        return torch.stack(out)


def _half_up(x: float) -> int:
    return int(x * (1 + 1e-14) + 0.5)


def _best(scores: torch.Tensor, count: int) -> torch.Tensor:
    """The slots with the largest scores, the newer of equals, ascending."""
    n = len(scores)
    order = torch.sort(scores.flip(0), descending=True, stable=True).indices[: max(0, count)]
    return (n - 1 - order).sort().values


def _head_and_tail(n: int, n_keep: int, sinks: int) -> torch.Tensor:
    return torch.cat([torch.arange(min(sinks, n_keep - 1)), torch.arange(n - n_keep + min(sinks, n_keep - 1), n)])
