"""Engines that compute the same, faster: decoding in C, top-p unsorted, prompts packed together.

The loop knows only the plain versions; `run/` hands these in. Start with packed.py, which
computes what logprobs.py does without padding, then decoding.py. Only calculator.py changes what
an answer says: it writes the results of the calculations in it.
"""
