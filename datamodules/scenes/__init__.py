"""Scenes of simple objects, drawn here."""
