"""Retrievers for personalization, trained on the feedback of the LLM that reads what they retrieve.

The folders are the pipeline: ``sources`` -> ``tasks`` -> ``retrievers`` -> ``llms`` -> ``feedback`` ->
``objectives`` and ``training`` -> ``evaluation``. Importing this package imports no torch.
"""

from ropg.examples import Document, Example

__all__ = ["Document", "Example"]
