# SPDX-License-Identifier: Apache-2.0
"""A model that says what it was told to say: each token decides the next one, and the last character of the prompt
chooses the answer. The Python twin of tests/serve/scripted_model.h."""

import gguf
import numpy as np

WIDTH = 64


def byte_letters():
    """GPT-2's letters for bytes."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, more = {}, 256
    for byte in range(256):
        letters[byte] = chr(byte if byte in plain else more)
        more += byte not in plain
    return letters


def write(path, scripts, jinja):
    """scripts: a character -> its words; a word that begins with '!' is a control token. All words differ."""
    tokens = ["<end>"] + list(byte_letters().values())
    tokens.append("th")  # a merge needs its result
    types = [3] + [1] * 257
    follows = []
    for start, words in scripts.items():
        last = tokens.index(start)
        for word in words:
            follows.append((last, len(tokens)))
            last = len(tokens)
            tokens.append(word.removeprefix("!"))
            types.append(3 if word.startswith("!") else 4)
        follows.append((last, 0))
    assert len(follows) <= WIDTH
    embedding = np.zeros((len(tokens), WIDTH), np.float32)
    output = np.zeros((len(tokens), WIDTH), np.float32)
    for i, (token, following) in enumerate(follows):
        embedding[token, i] = 1
        output[following, i] = 10

    file = gguf.GGUFWriter(path, "llama")
    file.add_context_length(4096)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(WIDTH)
    file.add_head_count(4)
    file.add_head_count_kv(4)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_freq_base(10000.0)
    file.add_rope_dimension_count(WIDTH // 4)
    file.add_vocab_size(len(tokens))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(tokens)
    file.add_token_types(types)
    file.add_token_merges(["t h"])
    file.add_bos_token_id(0)
    file.add_eos_token_id(0)
    file.add_add_bos_token(False)
    file.add_chat_template(jinja)
    file.add_tensor("token_embd.weight", embedding)
    file.add_tensor("output.weight", output)
    file.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_norm", "ffn_norm"):
        file.add_tensor(f"blk.0.{name}.weight", np.ones(WIDTH, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        file.add_tensor(f"blk.0.{name}.weight", np.zeros((WIDTH, WIDTH), np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
