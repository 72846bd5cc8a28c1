"""The program has moved to the package rfs."""

import sys

sys.exit("the program is `rfs`: python -m rfs (or torchrun -m rfs) in place of this module")
