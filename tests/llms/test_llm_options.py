"""Building an LLM: what it costs, what it refuses, and what identifies it."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from ropg.llms import PromptTooLong, load_llm
from ropg.registry import UnknownName


def test_building_loads_nothing(llama):
    """A run whose texts are all stored would wait minutes for weights that it does not need."""
    llm = load_llm("causal", model=str(llama))
    assert llm.identity["kind"] == "causal"
    assert llm.count_tokens("short") > 1
    assert llm.plan(["short"]) == [[0]]
    assert not llm.loaded
    llm.generate(["short"])
    assert llm.loaded


def test_import_needs_no_torch():
    """`--help` and a refused configuration would take seconds."""
    code = "import sys, ropg.llms, ropg.llms.causal, ropg.llms.seq2seq; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_identity_is_content_not_place(llama, tmp_path):
    """Moving a model's folder would generate everything again; another model would reuse its texts."""
    shutil.copytree(llama, tmp_path / "moved")
    here = load_llm("causal", model=str(llama)).identity
    assert load_llm("causal", model=str(tmp_path / "moved")).identity == here
    assert str(llama) not in str(here)
    assert load_llm("causal", model=str(llama), chat_template=True).identity != here
    assert load_llm("causal", model=str(llama), dtype="bfloat16").identity != here
    hub = load_llm("seq2seq", model="google/flan-t5-base", revision="abc").identity
    assert (hub["model"], hub["revision"]) == ("google/flan-t5-base", "abc")


def test_decoding_holds_what_changes_a_text(llama):
    """Texts of one decoding would be taken for those of another, or be generated again for nothing."""
    plain = load_llm("causal", model=str(llama))
    assert plain.decoding == {"num_beams": 1, "max_new_tokens": 64, "stop": []}
    assert load_llm("causal", model=str(llama), batch_tokens=9, max_input_tokens=8).decoding == plain.decoding
    assert load_llm("causal", model=str(llama), stop="\n").decoding["stop"] == ["\n"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"do_sample": True}, "asks for sampling"),
        ({"temperature": 0.7}, "asks for sampling"),
        ({"top_p": 0.9}, "asks for sampling"),
        ({"max_length": 20}, "max_new_tokens"),
        ({"beams": 4}, "unknown LLM option 'beams'"),
        ({"num_beams": 0}, "at least 1"),
        ({"stop": [""]}, "empty stop string"),
        ({"dtype": "fp32"}, "unknown dtype"),
        ({"attention": "fast"}, "attention 'fast' is unknown"),
        ({"attention": "flash_attention_2", "device": "cpu"}, "runs on a GPU only"),
    ],
)
def test_refused_options(options, message):
    """Feedback would be random, cut short, or made with another setting than the user asked for."""
    with pytest.raises(ValueError, match=message):
        load_llm("causal", model="some/name", **options)


def test_t5_refuses_float16_and_chat():
    """FlanT5 overflows to NaN in float16 and would answer nothing but padding."""
    with pytest.raises(ValueError, match="bfloat16 or dtype=float32"):
        load_llm("seq2seq", model="google/flan-t5-base", dtype="float16")
    with pytest.raises(ValueError, match="chat"):
        load_llm("seq2seq", model="google/flan-t5-base", chat_template=True)


def test_unknown_kind_and_missing_files(tmp_path):
    """A misspelt path would be looked for on the hub, and fail there with a message about tokens."""
    with pytest.raises(UnknownName, match="did you mean causal"):
        load_llm("casual", model="x")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        load_llm("causal", model=str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError, match=r"no\.gguf"):
        load_llm("causal", model=str(tmp_path / "no.gguf"))


def test_too_long_prompt_is_named(llama):
    """The question at the end of a prompt would be cut off without a word."""
    llm = load_llm("causal", model=str(llama), max_input_tokens=20)
    for call in (llm.plan, llm.generate_batch, llm.generate):
        with pytest.raises(
            PromptTooLong, match=r"prompt 1 has \d+ tokens, over max_input_tokens=20 \(1 of 2"
        ):
            call(["short", "long " * 40])
    assert not llm.loaded


def test_positions_are_respected(llama, t5):
    """A prompt and its answer would run past the position table, with garbage or a device assert."""
    llm = load_llm("causal", model=str(llama), max_input_tokens=600, max_new_tokens=64)
    with pytest.raises(ValueError, match="exceed the 640 positions"):
        llm.generate(["short"])
    load_llm("seq2seq", model=str(t5), max_input_tokens=4096, max_new_tokens=2).generate(["T5 has no limit"])


def test_incomplete_weights_are_refused(llama, tmp_path):
    """A model with random weights in place of missing ones would answer at random."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(llama, tmp_path / "part")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lacks 1 of its weights"):
        load_llm("causal", model=str(folder)).generate(["short"])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["causal", "seq2seq"])
def test_the_chosen_attention_is_used_and_changes_no_text(llama, t5, kind, attention):
    """Texts made with one are stored for all, so they must be the same."""
    folder = {"causal": llama, "seq2seq": t5}[kind]
    prompts = ["review: a quiet room", "cats sleep a lot, dogs do not"]
    usual = load_llm(kind, model=str(folder), max_new_tokens=8)
    llm = load_llm(kind, model=str(folder), max_new_tokens=8, attention=attention)
    assert llm.generate(prompts) == usual.generate(prompts)
    assert llm.model.config._attn_implementation == attention
    assert llm.identity == usual.identity
