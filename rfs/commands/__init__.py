"""The commands of `rfs`, one file each.

cli.py has the table of all commands. Only scripts and `__main__` import this room.
"""
