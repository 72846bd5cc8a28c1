"""Engines for more than one process: ranks, sharded models, sampling with a lag, Ray.

Each replaces something simple: ranks_policy.py and sharding.py replace `LocalPolicy`, lag.py and
ray_rollouts.py replace `on_policy_rollouts`, streaming.py replaces `training_loop`. Only `run/`
imports them. Start with ranks.py.
"""
