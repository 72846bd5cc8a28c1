"""`python -m reasoning_from_scratch train ...` is `rfs train ...`, for torchrun too."""

import sys

from reasoning_from_scratch.commands.cli import main

sys.exit(main())
