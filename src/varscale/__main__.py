"""`python -m varscale`, which is also how torchrun starts it."""

import sys

from varscale.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
