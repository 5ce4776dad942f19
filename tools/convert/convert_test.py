# SPDX-License-Identifier: Apache-2.0
"""Keys that a configuration may omit or spell differently still give the right metadata."""

import base64
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    import gguf
    import numpy as np
except ImportError as e:
    raise unittest.SkipTest(f"needs numpy and gguf: {e}") from e

from tools.convert import vocab
from tools.convert.families import blip2, chat_univi, flash_vstream, gemma2, gemma4, gpt_oss, minicpmv, qwen
from tools.convert.source import ConvertError, Source


class Folder(Source):
    """A model folder held in memory: a configuration, small files and tensors."""

    def __init__(self, config, files=(), tensors=()):
        self.folder, self.config, self.files, self.arrays = Path("folder"), config, dict(files), dict(tensors)
        self._where, self._used = {name: None for name in self.arrays}, set()

    def tensor(self, name):
        return self.arrays[name]

    def optional_json(self, name):
        return self.files.get(name, {})


class Writer:
    """Records what is added."""

    def __init__(self):
        self.values = {}

    def __getattr__(self, name):
        if not name.startswith("add_"):
            raise AttributeError(name)
        return lambda *value: self.values.__setitem__(value[0] if len(value) == 2 else name[4:], value[-1])


def blip(text_config, processor):
    folder = Folder(
        {"text_config": text_config, "vision_config": {"image_size": 224}, "qformer_config": {}},
        {"preprocessor_config.json": processor},
        {"query_tokens": np.zeros((1, 32, 768)), "language_projection.weight": np.zeros((2048, 768))},
    )
    blip2.prepare(folder, True)
    writer = Writer()
    blip2.mmproj_metadata(folder, writer, print)
    return writer.values


class Blip2(unittest.TestCase):
    def test_width_of_the_language_model(self):
        for text in ({"model_type": "opt", "hidden_size": 2048}, {"model_type": "t5", "d_model": 2048}, {}):
            self.assertEqual(blip(text, {})["vision_projection_dim"], 2048)

    def test_size_in_every_form(self):
        for size in ({"height": 224, "width": 224}, 224):
            self.assertEqual(blip({}, {"size": size})["vision_image_size"], 224)
        for size in ({"height": 364, "width": 364}, 364, {"shortest_edge": 224}):
            with self.assertRaises(ConvertError):
                blip({}, {"size": size})


class Gemma(unittest.TestCase):
    def scale(self, **more):
        config = dict(
            hidden_size=64,
            num_attention_heads=4,
            head_dim=16,
            num_hidden_layers=2,
            sliding_window=8,
            intermediate_size=96,
            num_key_value_heads=2,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            vocab_size=320,
            hidden_activation="gelu_pytorch_tanh",
            **more,
        )
        writer = Writer()
        gemma2.decoder_metadata(Folder(config), writer, print, 2)
        return writer.values["attention_scale"]

    def test_scale_is_always_said(self):
        self.assertEqual(self.scale(query_pre_attn_scalar=16), 0.25)  # also a reader's default
        self.assertEqual(self.scale(query_pre_attn_scalar=144), 1 / 12)
        self.assertEqual(self.scale(), 1 / 16)


class Qwen(unittest.TestCase):
    CONFIG = dict(
        hidden_size=64,
        num_attention_heads=4,
        kv_channels=16,
        num_hidden_layers=2,
        intermediate_size=96,
        vocab_size=320,
        seq_length=256,
    )

    def context(self, **more):
        folder, writer = Folder({**self.CONFIG, **more}), Writer()
        qwen.prepare(folder, False)
        qwen.metadata(folder, writer, lambda text: None)
        return writer.values["context_length"]

    def test_context_ends_where_others_would_scale(self):
        self.assertEqual(self.context(max_position_embeddings=1024), 1024)
        for flag in ("use_dynamic_ntk", "use_logn_attn"):
            self.assertEqual(self.context(max_position_embeddings=1024, **{flag: True}), 256)

    def test_what_has_no_form_is_refused(self):
        with self.assertRaises(ConvertError):
            self.context(no_bias=False)
        with self.assertRaises(ConvertError):
            self.context(kv_channels=8)
        with self.assertRaises(ConvertError):
            qwen.prepare(Folder(dict(self.CONFIG)), True)

    def test_merges_of_a_tiktoken(self):
        # "hel" is made of "h" and "el", as "el" came first, and "hello" of "hel" and "lo".
        tokens = [bytes([b]) for b in range(256)] + [b"el", b"lo", b"hel", b"hello", b" h"]

        def read(lines):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "qwen.tiktoken").write_bytes(b"".join(lines))
                source = Folder({})
                source.folder, source.special_tokens = Path(folder), ("<|endoftext|>", "<img>")
                return vocab._from_tiktoken(source)

        lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)]
        out = read(reversed(lines))
        self.assertEqual(out["model"]["merges"], ["e l", "l o", "h el", "hel lo", "\u0120 h"])
        self.assertEqual(out["model"]["vocab"]["hello"], 259)
        self.assertEqual([e["id"] for e in out["added_tokens"]], [261, 262])
        for bad in (lines[:200] + lines[201:], lines + [b"!! 261\n"], lines + [b"aGVsbG8hIQ== 261\n"]):
            with self.assertRaises(ConvertError):
                read(bad)

    def test_positions_of_a_finer_grid(self):
        table = np.arange(16, dtype=np.float32).reshape(16, 1)
        out = qwen.resized(table, 64).reshape(8, 8)
        # The result of torch.nn.functional.interpolate, bicubic, for the same input.
        want = [-0.52734, -0.23047, 0.24609, 0.875, 1.28125, 1.91016, 2.38672, 2.68359]
        np.testing.assert_allclose(out[0], want, atol=1e-5)
        np.testing.assert_allclose(qwen.resized(np.ones((16, 3), np.float32), 25), 1, atol=1e-6)
        self.assertIs(qwen.resized(table, 16), table)
        with self.assertRaises(ConvertError):
            qwen.resized(table[:15], 64)


class GptOss(unittest.TestCase):
    """Published experts: blocks of 16 bytes with two neighbours in each, and a power of two for each block."""

    def test_blocks_keep_their_values(self):
        rng = np.random.default_rng(0)
        blocks = rng.integers(0, 256, (2, 6, 3, 16), dtype=np.uint8)
        scales = rng.integers(100, 140, (2, 6, 3), dtype=np.uint8)
        levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
        levels = np.concatenate([levels, -levels])
        values = np.stack([levels[blocks & 15], levels[blocks >> 4]], axis=-1).reshape(2, 6, 3, 32)
        values = (values * np.exp2(scales.astype(np.float32) - 127)[..., None]).reshape(2, 6, 96)
        source = Folder({}, tensors={"w_blocks": blocks, "w_scales": scales})
        source.raw = source.tensor
        decode = lambda part: gguf.quants.dequantize(part.bytes, gguf.GGMLQuantizationType.MXFP4)
        gate, up = gpt_oss.matrices(source, "w", 2)
        np.testing.assert_array_equal(decode(gate), values[:, ::2])
        np.testing.assert_array_equal(decode(up), values[:, 1::2])
        np.testing.assert_array_equal(decode(gpt_oss.matrices(source, "w", 1)[0]), values)


class Frames(unittest.TestCase):
    def values(self, family, **config):
        folder = Folder(
            dict(hidden_size=4096, **config),
            (),
            {
                "model.vision_tower.vision_tower.vision_model.embeddings.class_embedding": np.zeros(1024),
                "model.attention_model.q_proj.weight": np.zeros((32, 1024)),
            },
        )
        family.prepare(folder, True)
        writer = Writer()
        family.mmproj_metadata(folder, writer, print)
        return {name.rsplit(".", 1)[-1]: value for name, value in writer.values.items()}

    def test_star_memory_of_the_published_model(self):
        v = self.values(flash_vstream)
        rows = sum(v[f"{part}_side"] ** 2 * v[f"{part}_count"] for part in ("spatial", "temporal", "abstract"))
        self.assertEqual(rows + v["retrieved_count"] * v["spatial_side"] ** 2, 681)
        self.assertEqual((v["key_length"], v["vision_block_count"], v["fit"]), (32, 23, "crop"))
        self.assertEqual(self.values(flash_vstream, compress_long_memory_size=2)["temporal_side"], 2)
        for other in (
            dict(video_sample_type="kmerge"),
            dict(mm_use_4_vision_tokens=True),
            dict(mm_projector_type="linear"),
        ):
            with self.assertRaises(ConvertError):
                self.values(flash_vstream, **other)

    def test_clusters_as_numbers_and_shares(self):
        v = self.values(chat_univi)
        self.assertEqual((v["clusters"], v["per_event"], v["buffer_count"]), ([64, 32, 16], 16, 64))
        shares = {"spatial_cluster_rate0": 0.25, "spatial_cluster_rate1": 0.5, "spatial_cluster_rate2": 0.5}
        self.assertEqual(self.values(chat_univi, config=shares)["clusters"], [64, 32, 16])
        for other in (
            dict(config={"use_cluster": False}),
            dict(config={"temporal_cluster_rate": 0.3}),
            dict(mm_projector_type="mlp2x_gelu"),
        ):
            with self.assertRaises(ConvertError):
                self.values(chat_univi, **other)

    def test_an_encoder_that_is_nowhere_is_named(self):
        folder = Folder(dict(hidden_size=4096, mm_vision_tower="openai/clip-vit-large-patch14"))
        with self.assertRaisesRegex(ConvertError, "clip-vit-large-patch14 to folder/vision_tower"):
            flash_vstream.prepare(folder, True)


class Gemma4Vision(unittest.TestCase):
    def values(self, processor=(), text=(), **vision):
        folder = Folder(
            dict(text_config=dict(text), vision_config=vision),
            {"processor_config.json": {"image_processor": dict(processor)}},
            {"model.embed_vision.embedding_projection.weight": np.zeros((1536, 768))},
        )
        folder.shape = lambda name: folder.arrays[f"model.{name}"].shape
        gemma4.prepare(folder, True)
        writer = Writer()
        gemma4.mmproj_metadata(folder, writer, print)
        return writer.values

    def test_published_settings_need_no_key_of_ours(self):
        v = self.values(dict(do_normalize=False, max_soft_tokens=280, resample=3))
        self.assertFalse([key for key in v if key.startswith("weir.")])
        self.assertNotIn("vision_projector_scale_factor", v)
        self.assertEqual((v["vision_projection_dim"], v["vision_image_mean"]), (1536, [0.0] * 3))

    def test_what_differs_is_written_or_refused(self):
        self.assertEqual(self.values(dict(max_soft_tokens=1120))["weir.vision.max_rows"], 1120)
        self.assertEqual(self.values(dict(do_normalize=True, image_mean=[0.5] * 3))["vision_image_mean"], [0.5] * 3)
        self.assertEqual(self.values(pooling_kernel_size=4)["vision_projector_scale_factor"], 4)
        for other in (
            dict(processor=dict(resample=2)),
            dict(processor=dict(patch_size=14)),
            dict(num_key_value_heads=4),
            dict(head_dim=32),
            dict(attention_bias=True),
            dict(rope_parameters=dict(rope_theta=10000.0)),
        ):
            with self.assertRaises(ConvertError):
                self.values(**other)
        with self.assertRaisesRegex(ConvertError, "no vision encoder"):
            gemma4.prepare(Folder(dict(text_config={})), True)


class MiniCpmV(unittest.TestCase):
    def values(self, processor=(), **config):
        folder = Folder(
            dict(config),
            {"preprocessor_config.json": dict(processor)},
            {"resampler.query": np.zeros((64, 3584))},
        )
        folder.shape = lambda name: folder.arrays[name].shape
        minicpmv.prepare(folder, True)
        writer = Writer()
        minicpmv.mmproj_metadata(folder, writer, print)
        return writer.values

    def test_generations(self):
        for named, number in ((2.5, 2), ("2.6", 3), (4, 5), (4.0, 5), (4.5, 6)):
            self.assertEqual(self.values(version=named)["clip.minicpmv_version"], number)
        with self.assertRaisesRegex(ConvertError, "version 2.0"):
            self.values(version=2.0)

    def test_published_settings_need_no_key_of_ours(self):
        v = self.values(dict(max_slice_nums=9, scale_resolution=448, patch_size=14), version=2.6, image_size=448)
        self.assertFalse([key for key in v if key.startswith("weir.")])
        self.assertEqual((v["vision_image_size"], v["clip.minicpmv_query_num"]), (448, 64))
        self.assertEqual(self.values(version=2.6, drop_vision_last_layer=True)["vision_block_count"], 26)
        self.assertEqual(self.values(dict(slice_mode=False), version=2.6)["weir.vision.max_slices"], 1)

    def test_the_language_model_is_known_by_its_tensors(self):
        first = "llm.model.layers.0.self_attn."
        for tensors, arch in (
            ((), "llama"),
            ((f"{first}q_proj.bias",), "qwen2"),
            ((f"{first}q_norm.weight",), "qwen3"),
        ):
            folder = Folder(dict(version=2.6), tensors={name: np.zeros(1) for name in tensors})
            minicpmv.prepare(folder, False)
            self.assertEqual(minicpmv.gguf_arch(folder), arch)


if __name__ == "__main__":
    unittest.main()
