"""A LLaMA that writes down what it is asked and can lose its process: Ray's actors hold it in the tests."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ropg.llms import Generation
from ropg.llms.causal import CausalLLM


class LethalLlama(CausalLLM):
    """Appends a JSON line [process, prompts] to ``log`` before it answers.

    ``dies_at``: the number of lines in the log after which whoever writes the next one kills itself, once.
    ``poison``: a word; a batch with it kills every process that begins it. ``fails``: a word whose batch raises.
    """

    def __init__(
        self,
        model: str,
        *,
        log: str,
        dies_at: int | None = None,
        poison: str = "",
        fails: str = "",
        **options: Any,
    ) -> None:
        super().__init__(model, **options)
        self.log, self.dies_at, self.poison, self.fails = Path(log), dies_at, poison, fails

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        with self.log.open("a") as log:
            log.write(json.dumps([os.getpid(), list(prompts)]) + "\n")
        lines = len(self.log.read_text().splitlines())
        once = self.log.with_suffix(".died")
        if self.dies_at is not None and lines > self.dies_at and not once.exists():
            once.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        if self.poison and any(self.poison in prompt for prompt in prompts):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails and any(self.fails in prompt for prompt in prompts):
            raise ValueError("this prompt is refused")
        return super().generate_batch(prompts)
