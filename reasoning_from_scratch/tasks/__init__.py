"""Where problems come from, and what answers and pays. Start with problem_sets.py.

problem_sets.py    the tiny world, MATH, GSM8K, a file, a function of your own
made_sets.py       sets with rules of their own: reasoning-gym, instructions/
own_task.py        verifiers, evaluators, recipes from your files; foreign.py guards them
environments/      what speaks with the model while it answers
judge.py           which of them judges a rollout
"""
