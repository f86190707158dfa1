"""Contains the base of every other package: errors, ids, text, types, columns."""
