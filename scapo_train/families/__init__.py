"""Forward passes of the model families."""
