"""A LLaMA in a GGUF file answers as the same LLaMA in safetensors does."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from ropg.llms import load_llm

gguf = pytest.importorskip("gguf")


def interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """GGUF keeps the rotary halves of queries and keys interleaved."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


@pytest.fixture(scope="module")
def gguf_file(llama, tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    model = LlamaForCausalLM.from_pretrained(llama)
    config = model.config
    core = json.loads((llama / "tokenizer.json").read_text())
    vocabulary = sorted(core["model"]["vocab"].items(), key=lambda item: item[1])
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if index < 2 else 1 for _, index in vocabulary])  # 3: control token
    writer.add_token_merges([" ".join(pair) for pair in core["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, tensor in model.state_dict().items():
        values = tensor.float().numpy()
        stem = name.removesuffix(".weight")
        if stem in whole:
            writer.add_tensor(f"{whole[stem]}.weight", values)
            continue
        _, _, layer, part = stem.split(".", 3)
        if part.endswith(("q_proj", "k_proj")):
            queries = part.endswith("q_proj")
            values = interleave(values, config.num_attention_heads if queries else config.num_key_value_heads)
        writer.add_tensor(f"blk.{layer}.{names[part]}.weight", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_same_logits_as_safetensors(gguf_file, llama):
    """A model from a GGUF file would be a slightly different one, and nobody would notice."""
    ids = torch.tensor([[0, 40, 41, 42]])
    ours = load_llm("causal", model=str(gguf_file), dtype="float32", max_input_tokens=64)
    with torch.no_grad():
        expected = LlamaForCausalLM.from_pretrained(llama)(ids).logits
        assert torch.allclose(ours.model(ids).logits, expected, atol=1e-4)


def test_tokenizer_is_the_automatic_one(gguf_file):
    """The fast way to the tokenizer would split text otherwise than the model was trained on."""
    ours = load_llm("causal", model=str(gguf_file)).tokenizer
    automatic = AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)
    assert ours.backend_tokenizer.to_str() == automatic.backend_tokenizer.to_str()
    assert (ours.bos_token_id, ours.eos_token_id, ours.pad_token_id) == (0, 1, 1)


def test_every_way_to_name_it(gguf_file, monkeypatch, tmp_path):
    """The sample's model, which lies in an installed package, could not be named in a configuration."""
    package = types.ModuleType("a_package_with_a_model")
    package.__spec__ = types.SimpleNamespace(submodule_search_locations=[str(gguf_file.parent)])
    monkeypatch.setitem(sys.modules, package.__name__, package)
    prompts = ["review: quiet", "x"]
    named = [
        load_llm("causal", model=str(gguf_file), max_new_tokens=4, stop=["zz"]),
        load_llm("causal", model=str(gguf_file.parent), gguf_file="tiny.gguf", max_new_tokens=4, stop=["zz"]),
        load_llm("causal", model=f"package:{package.__name__}/tiny.gguf", max_new_tokens=4, stop=["zz"]),
    ]
    assert len({json.dumps(llm.identity) for llm in named}) == 1
    assert len({tuple(llm.generate(prompts)) for llm in named}) == 1
    with pytest.raises(ValueError, match="GGUF file already"):
        load_llm("causal", model=str(gguf_file), gguf_file="other.gguf")


def test_loading_is_quiet(gguf_file, capfd):
    """Logs would fill with progress bars of each process."""
    load_llm("causal", model=str(gguf_file), max_new_tokens=2).generate(["x"])
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"loading {gguf_file} (float32 on cpu)\n"
