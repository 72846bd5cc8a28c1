"""`python -m rfs train ...` is `rfs train ...`, for torchrun too."""

import sys

from rfs.commands.cli import main

sys.exit(main())
