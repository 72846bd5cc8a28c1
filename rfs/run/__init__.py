"""A run: how it is put together, started, saved, stopped and resumed.

start.py loads what a configuration names and hands it to the loop of trainer.py;
training_run.py is the object that the loop calls between steps. Commands import this room; the
loop never does. Start with `train` in start.py.
"""
