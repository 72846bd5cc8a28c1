"""Reinforcement learning with verifiable rewards, from scratch, in plain PyTorch."""

__version__ = "0.1.0"
