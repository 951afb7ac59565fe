"""Entry point of ``python -m unknot.cli``."""

from unknot.cli import main

raise SystemExit(main())
