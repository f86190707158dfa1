"""Reports, plots and tables of scores.

``gather`` reads the inputs, ``data`` contains the data to show, ``html`` makes a self-contained page, ``plots`` draws
figures for papers, and ``tables`` builds the tables of the paper. jinja2 and matplotlib (extra ``report``) are imported
when they are used.
"""

from __future__ import annotations

from .data import CaptionEvidence, Report, TrainingLog, caption_evidence, read_training_log

__all__ = ["CaptionEvidence", "Report", "TrainingLog", "caption_evidence", "read_training_log"]
