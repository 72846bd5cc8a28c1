"""Weights and tokenizers on disk and on the way there: formats, checks, downloads, whole files.

Nothing here knows of training. Start with weights.py, which opens any model that the package
can name, then downloads.py.
"""
