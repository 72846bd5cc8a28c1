"""Engines for more than one process: ranks, slices of a model, sampling with a lag, Ray.

Each takes the place of something plain: ranks_policy.py and sharding.py of `LocalPolicy`, lag.py
and ray_rollouts.py of `on_policy_rollouts`, streaming.py of `training_loop`. Only `run/` imports
them. Start with ranks.py.
"""
