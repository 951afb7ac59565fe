"""Trained checkpoints: find them and load them with the right class."""

from unknot.hub.loading import load

__all__ = ["load"]
