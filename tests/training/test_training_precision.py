"""bf16 is for the passes only: weights, gradients, Adam, losses and what is written stay in float32."""

import pytest
import torch
from safetensors.torch import load_file
from tiny_training import ToyEncoder, make_rows, run

from ropg.training import TrainSettings, bi_encoder_scorer, load_objective
from ropg.training.parallel import Processes
from ropg.training.step import Stepper, scoring_precision


def one_step(precision):
    """Loss, gradient and stepper after a step; the objective notes what it was given."""
    encoder, seen = ToyEncoder(), []
    objective = load_objective("ropg_kd", target_temperature=0.1)

    def watching(batch):
        loss, logs = objective(batch)
        seen.extend([batch.scores.dtype, batch.rewards.dtype, loss.dtype])
        assert not torch.is_autocast_enabled("cpu")  # log-softmax and loss in float32
        return loss, logs

    inner = []
    encoder.first.register_forward_hook(lambda *args: inner.append(args[-1].dtype))
    settings = TrainSettings(batch_size=2, accumulation=3, clip=None, mixed_precision=precision)
    s = Stepper(encoder, bi_encoder_scorer(encoder), make_rows(6, 3), watching, settings, Processes(encoder))
    report = s.take(0)
    return report.loss, torch.cat([p.grad.flatten() for p in s.parameters]), s, seen, inner


def test_bf16_passes_leave_everything_else_in_float32():
    """Adam at lr 1e-5 in bf16, which has three digits, would leave the weights where they are."""
    loss, gradient, s, seen, inner = one_step("bf16")
    assert set(inner) == {torch.bfloat16}  # the passes are
    assert set(seen) == {torch.float32}
    assert gradient.dtype == torch.float32
    assert {p.dtype for p in s.parameters} == {torch.float32}
    state = [v for values in s.optimizer.state.values() for v in values.values() if v.numel() > 1]
    assert {v.dtype for v in state} == {torch.float32}
    exact_loss, exact, *_ = one_step("no")
    assert loss == pytest.approx(exact_loss, rel=0.05)
    assert loss != exact_loss
    assert torch.nn.functional.cosine_similarity(gradient, exact, dim=0) > 0.99


def test_a_bf16_run_resumes_exactly_and_exports_float32(tmp_path):
    """The dev evaluations of a resumed run must be comparable with those before it."""

    def stop(record):
        if record["step"] == 9:
            raise KeyboardInterrupt

    run(tmp_path / "whole", mixed_precision="bf16")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "stopped", mixed_precision="bf16", checkpoint_every=2, tracker=stop)
    run(tmp_path / "stopped", mixed_precision="bf16")
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("whole", "stopped")]
    assert metrics[0] == metrics[1]
    run(tmp_path / "exact", mixed_precision="no")
    assert metrics[0] != (tmp_path / "exact" / "metrics.jsonl").read_bytes()
    assert load_file(tmp_path / "whole" / "model" / "model.safetensors")["words"].dtype == torch.float32


@pytest.mark.parametrize("has", [True, False])
def test_auto_is_bf16_only_where_the_gpu_has_it(monkeypatch, has):
    """torch also counts the emulation of older GPUs as support, which is slower than float32."""
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or has
    )
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    assert scoring_precision("auto", torch.device("cuda"))._enabled is has
    assert not scoring_precision("auto", torch.device("cpu"))._enabled


def test_weights_of_16_bits_are_refused():
    """They would train without an error, and hardly move."""
    encoder = ToyEncoder(dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"torch.bfloat16.*load them in float32"):
        Stepper(
            encoder,
            bi_encoder_scorer(encoder),
            make_rows(2, 1),
            load_objective("ropg_kd"),
            TrainSettings(),
            Processes(encoder),
        )


@pytest.mark.parametrize(
    ("variable", "name"), [("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")]
)
def test_a_launch_that_is_not_supported_is_refused(tmp_path, monkeypatch, variable, name):
    """It would train as if nothing had been asked for, and run out of memory where sharding was needed."""
    monkeypatch.setenv(variable, "true")
    with pytest.raises(ValueError, match=rf"under {name} is not supported.*ddp.yaml"):
        run(tmp_path)
