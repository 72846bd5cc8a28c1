"""Weights and tokenizers on disk, and how they get there: formats, checks, downloads, safe writes.

Nothing here knows about training. Start with weights.py, which opens any model that the package
can name, then downloads.py.
"""
