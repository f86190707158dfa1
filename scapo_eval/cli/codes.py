"""Exit codes of the command line other than 0."""

BAD_INPUT, GATE_MISSED, SOME_FAILED, INTERRUPTED = 2, 3, 4, 130
