"""A LLaMA that takes its time and writes down what it was asked: tests kill processes while it works.

``llm.kind=slow_llm:SlowLlama``; the log's path and the seconds per batch come from the environment. It is the
same LLM to the store, whose answers must not depend on who asks.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence

from ropg.llms import Generation
from ropg.llms.causal import CausalLLM


class SlowLlama(CausalLLM):
    """Appends a line of 65 bytes per prompt, the SHA-256 of its text, before it begins to answer."""

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        lines = "".join(f"{hashlib.sha256(prompt.encode()).hexdigest()}\n" for prompt in prompts)
        with open(os.environ["SLOW_LLM_LOG"], "a", encoding="ascii") as log:
            log.write(lines)
        time.sleep(float(os.environ["SLOW_LLM_SECONDS"]))
        return super().generate_batch(prompts)
