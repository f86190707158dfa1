"""Quality control of a presence/absence matrix: a person checks random cells, and bounds say what is still wrong.

``draws`` chooses the cells of a round, ``rounds`` keeps it on disk answer by answer, ``server`` (with ``page.*``) and
``exchange`` let a person answer, ``bounds`` holds the statistics, ``summary`` says what is known of the matrix, and
``summary_tables`` puts that into tables.
"""
