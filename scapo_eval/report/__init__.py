"""Looking at hallucination: reports, plots and tables of what was scored.

``gather`` reads the inputs, ``data`` holds what is shown, ``html`` makes one self-contained page of it, ``plots``
figures for papers, ``tables`` the paper's tables. jinja2 and matplotlib (extra ``report``) are imported when used.
"""

from __future__ import annotations

from .data import CaptionRun, Report, TrainingRun, read_caption_run, read_training_run

__all__ = ["CaptionRun", "Report", "TrainingRun", "read_caption_run", "read_training_run"]
