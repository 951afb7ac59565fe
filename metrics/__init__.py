"""Scores of representations: pure functions, ``torchmetrics`` classes, and ``evaluate``."""

from unknot.metrics import functional
from unknot.metrics.evaluation import METRICS, Draws, evaluate, register
from unknot.metrics.mig import MIG

__all__ = ["METRICS", "MIG", "Draws", "evaluate", "functional", "register"]
