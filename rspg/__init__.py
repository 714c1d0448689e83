"""Selectors that learn which retriever serves each input best."""
