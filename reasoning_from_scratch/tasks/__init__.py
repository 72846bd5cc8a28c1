"""Where problems come from, and what replies and rewards. Start with problem_sets.py.

problem_sets.py    the tiny world, MATH, GSM8K, a file, a function of your own
made_sets.py       sets with their own rules: reasoning-gym, instructions/
own_task.py        verifiers, evaluators, recipes from your files; foreign.py guards them
environments/      what speaks with the model while it answers
judge.py           which of them judges a rollout
"""
