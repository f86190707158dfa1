"""Reports, figures and tables that present scores.

The module ``gather`` reads the inputs, ``data`` defines the data to display, ``html`` creates a self-contained page,
``plots`` draws figures for papers, and ``tables`` builds the tables of the paper. jinja2 and matplotlib (extra
``report``) are imported only when they are needed.
"""

from __future__ import annotations

from .data import CaptionEvidence, Report, TrainingLog, caption_evidence, read_training_log

__all__ = ["CaptionEvidence", "Report", "TrainingLog", "caption_evidence", "read_training_log"]
