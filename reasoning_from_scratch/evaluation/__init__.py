"""How good is a model: answers to a problem set, an interval, pass@k, an evaluation card.

Start with evaluate.py; scores.py has the statistics.
"""
