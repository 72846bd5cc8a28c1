"""How good is a model: answers to a problem set, an interval, pass@k, an evaluation card.

Start with evaluate.py; the statistics are in reasoning_from_scratch/scores.py.
"""
