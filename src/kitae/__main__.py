"""`python -m kitae`."""

import sys

from kitae.cli.main import main

sys.exit(main())
