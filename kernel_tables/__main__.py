"""`python -m kernel_tables` is the command `kernel-tables`."""

import sys

from kernel_tables.cli import main

if __name__ == "__main__":
    sys.exit(main())
