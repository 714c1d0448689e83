"""The processes of a run, as `accelerate launch` starts them: who does which rows, and sums over all.

Every process holds a whole copy of the module. The rows of a step are shared out, each process adds up
its rows' part of the gradient of the whole step's loss, and the parts are summed: what one process would
have computed, up to the order of additions. Gradients are summed here rather than by wrapping the module
in DistributedDataParallel, since the wrapper averages per process, which is wrong for unequal shares, and
since it wants one forward pass through itself, while a scoring function calls the module as it likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from accelerate import PartialState
from accelerate.utils import broadcast, reduce
from torch import Tensor, nn

from ropg import processes


class Processes:
    """This process among the others.

    Attributes
    ----------
    device: where the module belongs: where it already is for a single process, else this process's own.
    is_main: True in the one process that writes files and shows progress.
    """

    def __init__(self, module: nn.Module) -> None:
        device = next(module.parameters()).device
        self._state = PartialState(cpu=device.type == "cpu")
        self.count: int = self._state.num_processes
        self.index: int = self._state.process_index
        self.is_main: bool = self._state.is_main_process
        self.device: torch.device = self._state.device if self.count > 1 else device

    def share(self, n: int) -> range:
        """Positions of the n rows that fall to this process: contiguous, the first processes' full."""
        size = -(-n // self.count)
        return range(min(n, self.index * size), min(n, (self.index + 1) * size))

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the tensors that all processes pass."""
        return reduce(tensor, reduction="sum") if self.count > 1 else tensor

    def sum_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sum of each number over all processes; one without rows passes none."""
        if self.count == 1:
            return dict(numbers)
        names = processes.agree(list(numbers))  # the main process always has rows
        values = [float(numbers.get(name, 0.0)) for name in names]
        summed = self.sum(torch.tensor(values, dtype=torch.float64, device=self.device))
        return dict(zip(names, summed.tolist(), strict=True))

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes; a missing one counts as 0."""
        if self.count == 1:
            return
        for parameter in parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = reduce(gradient, reduction="sum")

    def copy_from_main(self, module: nn.Module) -> None:
        """Give every process the main one's parameters and buffers."""
        if self.count == 1:
            return
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                tensor.copy_(broadcast(tensor.detach().clone()))

    def wait(self) -> None:
        """Return once all processes have come here."""
        self._state.wait_for_everyone()
