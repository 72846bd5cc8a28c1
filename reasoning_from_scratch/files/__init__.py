"""Weights and data on disk and on the way there: formats, checks, downloads, atomic writes.

Nothing here knows of training. Start with weights.py, which opens any model that the package
can name, then downloads.py.
"""
