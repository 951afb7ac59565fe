"""Rendered scenes of simple objects."""
