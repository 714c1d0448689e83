"""What training took, as summary.json reports it."""

import numpy as np
import torch

from ropg.costs import cost_line, peak_memory_mib, training_costs


def test_only_what_is_trained_is_counted():
    """3 x 2 weights and 3 biases are trained, the other layer is frozen; no GPU, so no figure of one."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 4))
    module[1].requires_grad_(False)
    costs = training_costs(module, 12.34)
    assert set(costs) == {"trainable_parameters", "train_seconds", "peak_memory_mib"}
    assert (costs["trainable_parameters"], costs["train_seconds"]) == (9, 12.3)
    assert isinstance(costs["peak_memory_mib"], int)


def test_the_peak_keeps_what_was_freed():
    """128 MiB that were written and given back count, in MiB."""
    np.ones(128 << 17).sum()  # 8 bytes each
    peak = peak_memory_mib()
    assert peak > 128
    assert 0 <= peak_memory_mib() - peak < 1


def test_the_line_names_a_gpu_where_there_was_one():
    costs = {"trainable_parameters": 1234, "train_seconds": 7.0, "peak_memory_mib": 2048}
    assert cost_line(costs) == "trained 1,234 parameters in 7 s; peak memory of this process 2,048 MiB"
    assert cost_line({**costs, "peak_gpu_memory_mib": 100}).endswith("2,048 MiB, of its GPU 100 MiB")
