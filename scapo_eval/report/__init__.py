"""Looking at hallucination: reports, plots and tables of what was scored.

``data`` gathers what is shown, ``html`` makes one self-contained page of it, ``plots`` makes figures for
papers, ``tables`` the paper's tables. jinja2 and matplotlib (extra ``report``) are imported when used.
"""

from __future__ import annotations

from .data import CaptionRun, Group, Report, TrainingRun, read_caption_run, read_training_run

__all__ = ["CaptionRun", "Group", "Report", "TrainingRun", "read_caption_run", "read_training_run"]
