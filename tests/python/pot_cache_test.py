# SPDX-License-Identifier: Apache-2.0
"""weir.PotCache in transformers against the engine: the same model, the same policy, the same greedy tokens."""

import tempfile
import unittest
from pathlib import Path

import numpy as np

MISSING = ""
try:
    import gguf  # noqa: F401
    import torch
    import weir

    from tools.convert import hf_to_gguf
    from tools.golden import tiny_models
except ImportError as error:
    MISSING = str(error)

POT, CATALYST = 96, [40, 41, 50, 60, 41, 70]


@unittest.skipIf(MISSING, f"skipped: {MISSING}")
class PotCacheTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.folder = tempfile.TemporaryDirectory()
        kind, settings = tiny_models.MODELS["llama"]
        cls.theirs = tiny_models.build(kind, dict(settings, max_position_embeddings=256), seed=5)
        cls.theirs.set_attn_implementation("eager")
        cls.theirs.save_pretrained(cls.folder.name)
        tiny_models.write_tokenizer(Path(cls.folder.name))
        path = Path(cls.folder.name) / "tiny.gguf"
        hf_to_gguf.convert_folder(cls.folder.name, path, "f32", name="tiny")
        cls.ours = weir.Model(path, threads=1)

    @classmethod
    def tearDownClass(cls):
        cls.ours.close()
        cls.folder.cleanup()

    def test_models_that_rotate_otherwise_are_refused(self):
        for name, why in (("glm4", "halves"), ("ernie4_5", "halves"), ("smollm3", "in every layer")):
            kind, settings = tiny_models.MODELS[name]
            with self.assertRaisesRegex(ValueError, why, msg=name):
                weir.PotCache(tiny_models.build(kind, dict(settings), seed=5), pot=POT)
        for name in ("qwen2", "qwen3", "llama_rope_yarn", "granite"):
            kind, settings = tiny_models.MODELS[name]
            weir.PotCache(tiny_models.build(kind, dict(settings), seed=5), pot=POT)

    def compare(self, policy, chunk, lengths=(40, 300, 1, 120), **options):
        rng = np.random.default_rng(1)
        spec, more = policy if isinstance(policy, tuple) else (policy, {})
        cache = weir.PotCache(self.theirs, pot=POT, policy=spec.partition(":")[0], chunk=chunk, **more, **options)
        with self.ours.session(pot=POT, chunk=chunk, policy=spec, cache_type="f32") as s:
            for n in lengths:
                ids = rng.integers(3, 320, n)
                s.read(ids, end_of_prompt=True)
                logits = cache.read(ids)
                self.assertLessEqual(cache.held, POT)
                self.assertEqual(cache.held, len(s.slots()))
                self.assertEqual(cache.seen, s.seen)
                np.testing.assert_allclose(logits.numpy(), s.logits(), atol=2e-4)
            self.assertGreater(cache.selections, 3)
            ids = []
            for _ in range(40):
                s.generate(max_tokens=1, temperature=0, ignore_end=True).read()
                ids.append(int(s.slots()["token_id"][-1]))
            tokens = cache.generate(max_tokens=40)
            self.assertEqual(tokens, ids)
            self.assertEqual(cache.held, len(s.slots()))
            self.assertEqual(cache.selections, s.counters().selections)
        return cache

    def test_streaming_llm(self):
        self.compare("streaming_llm", 16)
        self.compare("streaming_llm", 24)
        self.compare(("streaming_llm:sinks=0", {"sinks": 0}), 16)

    def test_inf_mllm(self):
        self.compare(("inf_mllm:recent=16,b=0.001", {"recent": 16, "bias": 0.001}), 16)

    def test_infinipot(self):
        text = self.ours.decode(CATALYST)
        self.assertEqual(self.ours.encode(text).tolist(), CATALYST)
        spec = f'infinipot:template=off,catalyst="{text}"'
        self.compare((spec, {"catalyst": CATALYST}), 16)
        self.compare((spec + ",alpha=1", {"catalyst": CATALYST, "alpha": 1.0}), 16)
        self.compare((spec + ",alpha=0,ratio=0.75", {"catalyst": CATALYST, "alpha": 0.0, "ratio": 0.75}), 16)

    def test_memory_is_freed(self):
        cache = weir.PotCache(self.theirs, pot=POT, chunk=16)
        for _ in range(30):
            cache.read(np.arange(3, 103))
        held = sum(x.untyped_storage().nbytes() for layer in cache.layers for x in (layer.keys, layer.values))
        config = self.theirs.config
        of_a_slot = 2 * 4 * config.num_key_value_heads * config.head_dim * config.num_hidden_layers
        self.assertLessEqual(held, POT * of_a_slot)
        self.assertEqual(cache.seen, 3000)
        cache.reset()
        self.assertEqual((cache.held, cache.seen), (0, 0))
        with self.assertRaises(ValueError):
            cache.generate(max_tokens=1)

    def test_layers_may_have_different_heads(self):
        theirs = tiny_models.build(*tiny_models.MODELS["llama"], seed=5)
        theirs.set_attn_implementation("eager")
        config = theirs.config
        attention = theirs.model.layers[1].self_attn
        n_heads = 1 if config.num_key_value_heads != 1 else 2
        for name in ("k_proj", "v_proj"):
            fewer = torch.nn.Linear(config.hidden_size, n_heads * attention.head_dim, bias=False)
            setattr(attention, name, fewer)
        attention.num_key_value_groups = config.num_attention_heads // n_heads
        ids = torch.arange(3, 60)
        plain = theirs(input_ids=ids[None]).logits[0, -1]
        for policy in ("streaming_llm", "inf_mllm", "infinipot"):
            with self.subTest(policy=policy):
                cache = weir.PotCache(theirs, pot=POT, chunk=57, policy=policy, recent=16, catalyst=CATALYST)
                np.testing.assert_allclose(cache.read(ids[:30]).shape, plain.shape)
                np.testing.assert_allclose(cache.read(ids[30:]).numpy(), plain.detach().numpy(), atol=1e-4)
                for _ in range(4):
                    cache.read(ids)
                self.assertGreater(cache.selections, 1)
                self.assertLessEqual(cache.held, POT)
                self.assertEqual(
                    [layer.keys.shape[1] for layer in cache.layers[:2]], [config.num_key_value_heads, n_heads]
                )
                self.assertEqual(len(cache.generate(max_tokens=5)), 5)

    def test_before_anything_is_forgotten_it_is_a_plain_cache(self):
        ids = torch.arange(3, 60)[None]
        plain = self.theirs(input_ids=ids).logits[0, -1]
        cache = weir.PotCache(self.theirs, pot=POT, chunk=57)
        np.testing.assert_allclose(cache.read(ids[0]).numpy(), plain.detach().numpy(), atol=1e-4)

    def test_what_it_cannot_do_is_refused(self):
        for bad in ({"policy": "h2o"}, {"pot": 4}, {"policy": "infinipot"}):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                weir.PotCache(self.theirs, **({"pot": POT} | bad))
        other = tiny_models.build(*tiny_models.MODELS["llama_window"], seed=1)
        with self.assertRaises(ValueError):
            weir.PotCache(other, pot=POT)
        fused = tiny_models.build(*tiny_models.MODELS["llama_tied"], seed=1)  # sdpa gives no weights
        with self.assertRaises(ValueError):
            weir.PotCache(fused, pot=POT, policy="inf_mllm")
        with self.assertRaises(ValueError):
            weir.PotCache(self.theirs, pot=POT).layers[0].update(torch.zeros(2, 2, 3, 8), torch.zeros(2, 2, 3, 8))


if __name__ == "__main__":
    unittest.main()
