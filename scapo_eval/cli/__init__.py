"""The command line, which contains only click commands and rich rendering."""
