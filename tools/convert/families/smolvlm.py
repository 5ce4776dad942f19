# SPDX-License-Identifier: Apache-2.0
"""SmolVLM, SmolVLM2 and Idefics3: SigLIP and its connector to llama.cpp's `mmproj` file (GGUF architecture `clip`,
projector `idefics3`), and the language model to a separate `llama` file.

With --mmproj the encoder is converted, without it the language model.
"""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "llama"
HF_NAMES = ("SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration")
MMPROJ_ARCH = "clip"

# transformers' defaults for keys that config.json may omit: SmolVLM's, and Idefics3's where they differ.
VISION_DEFAULTS = dict(
    hidden_size=1152,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=16,
    image_size=224,
    patch_size=32,
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
)
TEXT_DEFAULTS = dict(
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    rms_norm_eps=1e-5,
    vocab_size=32000,
)
HALF = (0.5, 0.5, 0.5)
LANCZOS = 1

RENAMES = (
    ("model.text_model.", "model."),
    ("model.vision_model.", "vision_model."),
    ("model.connector.", "connector."),
)

LAYER = {
    "layer_norm1": "ln1",
    "layer_norm2": "ln2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_out",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
}


def prepare(source, mmproj):
    """Makes the folder look like only the half that is being converted."""
    source.whole_config = source.config
    source.rename(RENAMES)
    if mmproj:
        source.config = {**VISION_DEFAULTS, **(source.config.get("vision_config") or {})}
        if (act := source.config["hidden_act"]) != "gelu_pytorch_tanh":
            raise ConvertError(f"config.json: hidden_act `{act}`; this encoder is defined with gelu_pytorch_tanh")
        source.ignore_prefix("model.", "lm_head.")
    else:
        text = source.config.get("text_config") or {}
        if (kind := text.get("model_type", "llama")) != "llama":
            raise ConvertError(f"config.json: language model `{kind}`; this architecture is converted with llama")
        # Releases state in different places that head and embedding are tied; the tensors are reliable.
        source.config = {**TEXT_DEFAULTS, **text, "tie_word_embeddings": not source.has("lm_head.weight")}
        source.ignore_prefix("vision_model.", "connector.")


metadata, tensors = llama.metadata, llama.tensors


def mmproj_metadata(source, writer, say):
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    size = source.need("image_size")
    square = (processor.get("max_image_size") or {}).get("longest_edge", size)
    longest = (processor.get("size") or {}).get("longest_edge", 4 * square)
    if square != size or processor.get("resample", LANCZOS) != LANCZOS:
        raise ConvertError(
            f"preprocessor_config.json: squares of {square}, resample {processor.get('resample')}; this encoder "
            f"is defined with Lanczos squares of {size}"
        )
    text = {**TEXT_DEFAULTS, **(source.whole_config.get("text_config") or {})}
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("idefics3")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(text["hidden_size"])
    writer.add_vision_projector_scale_factor(source.whole_config.get("scale_factor", 2))
    writer.add_vision_image_size(size)
    writer.add_vision_preproc_image_size(longest)
    writer.add_vision_patch_size(source.need("patch_size"))
    writer.add_vision_embedding_length(source.need("hidden_size"))
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(source.need("num_attention_heads"))
    writer.add_vision_attention_layernorm_eps(source.need("layer_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", HALF))
    writer.add_vision_image_std(processor.get("image_std", HALF))
    # llama.cpp has no key for a processor that does not split pictures.
    writer.add_bool("weir.vision.split", processor.get("do_image_splitting", True))


def siglip_tensors(source):
    """SigLIP's vision transformer, its last norm included."""
    both = lambda hf, name: ((f"{name}.{kind}", source.tensor(f"{hf}.{kind}")) for kind in ("weight", "bias"))
    yield from both("vision_model.embeddings.patch_embedding", "v.patch_embd")
    yield "v.position_embd.weight", source.tensor("vision_model.embeddings.position_embedding.weight")
    for i in range(source.need("num_hidden_layers")):
        for hf, name in LAYER.items():
            yield from both(f"vision_model.encoder.layers.{i}.{hf}", f"v.blk.{i}.{name}")
    yield from both("vision_model.post_layernorm", "v.post_ln")


def mmproj_tensors(source):
    yield from siglip_tensors(source)
    yield "mm.model.fc.weight", source.tensor("connector.modality_projection.proj.weight")
