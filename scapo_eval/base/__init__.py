"""What every room stands on: errors, ids, text, types, columns."""
