"""Claims of a caption beyond presence: how many, of what kind, where, and what is written."""
