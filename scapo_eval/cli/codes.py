"""Exit codes beside 0: what the shell is told."""

BAD_INPUT, GATE_MISSED, SOME_FAILED, INTERRUPTED = 2, 3, 4, 130
