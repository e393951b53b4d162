"""``python -m coulomb``."""

from coulomb.cli import main

main()
