"""What is asked for is what runs, and what cannot run is refused before anything is loaded."""

from __future__ import annotations

import pytest

from ropg import hardware


def check(attention: str, device: str = "cpu", dtype: str = "auto") -> None:
    hardware.check_attention(attention, device=lambda: device, dtype=dtype)


@pytest.mark.parametrize("attention", ["auto", "sdpa", "eager"])
def test_what_runs_everywhere_asks_for_no_device(attention: str) -> None:
    """Asking loads torch, and building an LLM must not."""

    def device() -> str:
        raise AssertionError

    hardware.check_attention(attention, device=device, dtype="auto")


def test_flash_attention_is_refused_without_gpu_package_or_16_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours later it would be an ImportError, or a kernel that knows no float32."""
    with pytest.raises(
        ValueError, match="runs on a GPU only, and the device is cpu; or leave attention=auto"
    ):
        check("flash_attention_2")
    monkeypatch.setattr(hardware, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install flash-attn"):
        check("flash_attention_2", "cuda:0")
    monkeypatch.setattr(hardware, "find_spec", lambda name: object())
    monkeypatch.setattr(hardware, "computes_in_bf16", lambda device: device == "cuda:1")
    for device, dtype in (("cuda:1", "float32"), ("cuda:0", "auto")):
        with pytest.raises(ValueError, match="16 bits only; set dtype=float16 or bfloat16"):
            check("flash_attention_2", device, dtype)
    check("flash_attention_2", "cuda:1")
    check("flash_attention_2", "cuda:0", "float16")


@pytest.mark.parametrize("has", [True, False])
def test_emulated_bf16_is_none(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    """A V100 or T4 emulates bf16, slower than it computes in float32; torch counts that as support."""
    import torch

    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or has
    )
    assert hardware.computes_in_bf16("cuda:0") is has
    assert not hardware.computes_in_bf16("cpu")
    from ropg.llms.loading import resolve_dtype

    assert resolve_dtype("auto", "cuda:0") == ("bfloat16" if has else "float32")


def test_settings_that_change_no_result_do_not_change_the_run() -> None:
    """A run begun without them would be refused, or trained again from the beginning."""
    from ropg.configuration import Config
    from ropg.runs import DECIDES_SELECTOR, decisive

    config = Config()
    config.llm.attention = config.encoder.attention = "eager"
    config.encoder.gradient_checkpointing = config.selector.gradient_checkpointing = True
    config.encoder.compile = True
    assert decisive(config, DECIDES_SELECTOR) == decisive(Config(), DECIDES_SELECTOR)
