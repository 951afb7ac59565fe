"""Metrics as ``torchmetrics.Metric``: of latents, of interventions and of objects."""
