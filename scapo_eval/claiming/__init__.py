"""Claims in captions beyond presence: counts, attributes, relations and written text."""
