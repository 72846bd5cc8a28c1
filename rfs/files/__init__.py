"""Saves of runs as models, tables that experiments write, and data sets of the hub."""
