"""Published data sets, read from their files."""
