"""Problems, environments, and the code that judges answers. Start with problem_sets.py.

problem_sets.py      a row for each source of problems; source.py says what a source provides
problem_function.py  a source: a function of your own; others are hub_sets.py, gym_tasks.py
instructions/        a source with rules of its own, as reasoning-gym's tasks have
own_task.py          verifiers, evaluators, recipes from your files; foreign.py guards them
environments/        code that talks with the model while it answers
judge.py             decides who judges a rollout
"""
