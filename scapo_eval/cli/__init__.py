"""Command-line interface, which contains only click commands and rich rendering."""
