"""From run records to a static HTML site that opens from a folder, without a network."""

from __future__ import annotations

from icml26.report.build import ReportSummary, build_report

__all__ = ["ReportSummary", "build_report"]
