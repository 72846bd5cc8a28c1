"""Problems, environments, and the code that judges answers. Start with problem_sets.py.

problem_sets.py    the sets of the chapters, a function of your own, sets of the hub
made_sets.py       sets judged by rules of their own: reasoning-gym, instructions/
own_task.py        verifiers, evaluators, recipes from your files; foreign.py guards them
environments/      code that talks with the model while it answers
judge.py           decides who judges a rollout
"""
