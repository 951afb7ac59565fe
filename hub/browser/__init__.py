"""The page to browse trained checkpoints: its server on this machine, and its export as one file."""
