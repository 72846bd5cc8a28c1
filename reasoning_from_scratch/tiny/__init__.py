"""The tiny world: problems without end, for language models that are small enough for a laptop.

Start with world.py, the problems. checkpoints/pretrain.py makes the models for them.
"""
