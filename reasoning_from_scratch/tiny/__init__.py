"""The tiny world: problems without end, a tokenizer and a language model made for them here.

Start with world.py, the problems. commands/tiny_pretrain.py makes the models in checkpoints/.
"""
