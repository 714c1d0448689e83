"""The task of the shipped synthetic sample: the title of a review, in LaMP-4's file format."""

from __future__ import annotations

from ropg.tasks import register_task
from ropg.tasks.base import TaskDefinition
from ropg.tasks.lamp_generation import titles_task


@register_task("sample_titles")
def sample_titles(language: str = "en") -> TaskDefinition:
    """LaMP-4 but for the words of its pattern: the texts are reviews, and a small LLM is told so."""
    instruction = "Generate a headline for the following article:"
    return titles_task("sample_titles", language, instruction, "review", "title")
