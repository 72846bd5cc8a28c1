"""How good is a model: answers to a problem set, an interval, pass@k, an evaluation card.

Start with evaluate.py; scores.py has the statistics. methods.py spends more than one answer on a
problem (votes, scores, second looks: choices.py), and rescore.py grades a stored file again.
"""
