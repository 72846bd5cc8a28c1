"""What `rfs` can do, a file for each command.

cli.py has the table of all commands. Nothing imports this room but scripts and `__main__`.
"""
