"""Basic modules for errors, image ids, text processing, types and columns, which all other packages use."""
