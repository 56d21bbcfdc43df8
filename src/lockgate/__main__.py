"""``python -m lockgate`` is the command ``lockgate``."""

import sys

from .cli import main

sys.exit(main())
