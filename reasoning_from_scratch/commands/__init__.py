"""What `rfs` can do, a file for each command that is not at home in another room.

cli.py has the table of all commands. Nothing imports this room but scripts and `__main__`.
"""
