"""Reports, plots and tables of what was scored.

``gather`` reads the inputs, ``data`` holds what is shown, ``html`` makes one self-contained page of it, ``plots``
figures for papers, ``tables`` the paper's tables. jinja2 and matplotlib (extra ``report``) are imported when used.
"""

from __future__ import annotations

from .data import CaptionEvidence, Report, TrainingLog, caption_evidence, read_training_log

__all__ = ["CaptionEvidence", "Report", "TrainingLog", "caption_evidence", "read_training_log"]
