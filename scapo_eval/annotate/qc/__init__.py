"""Quality control of a presence/absence matrix: a person checks random cells, and exact bounds on the number of
remaining errors are computed.

``draws`` selects the cells of a round, and ``rounds`` stores the round on disk and updates it with every answer.
``server`` (with ``page.*``) and ``exchange`` collect people's answers. ``bounds`` contains the statistics, ``summary``
estimates the errors of the matrix, and ``summary_tables`` formats the estimates as tables.
"""
