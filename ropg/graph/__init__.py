"""The user-item graph of PGraphRAG: reviews as edges, profiles from a user's own reviews and the neighbours'."""

from __future__ import annotations

from ropg.graph.building import Review
from ropg.graph.files import DamagedGraph
from ropg.graph.interactions import InteractionGraph, UnknownItem, UnknownUser
from ropg.graph.profiles import GraphProfile, GraphProfileSource
from ropg.graph.reading import (
    from_reviews_file,
    from_saved,
    from_split_file,
    from_table,
    read_graph,
)
from ropg.graph.reading_report import ReadGraph, ReadingReport
from ropg.graph.targets import choose_targets, has_neighbor

__all__ = [
    "DamagedGraph",
    "GraphProfile",
    "GraphProfileSource",
    "InteractionGraph",
    "ReadGraph",
    "ReadingReport",
    "Review",
    "UnknownItem",
    "UnknownUser",
    "choose_targets",
    "from_reviews_file",
    "from_saved",
    "from_split_file",
    "from_table",
    "has_neighbor",
    "read_graph",
]
