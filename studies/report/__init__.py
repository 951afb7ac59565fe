"""Report with every analysis that a table of results allows."""

from unknot.studies.report.report import Report, make_report

__all__ = ["Report", "make_report"]
