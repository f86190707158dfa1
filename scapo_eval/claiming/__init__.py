"""Claims beyond presence in captions: counts, attributes, relations and written text."""
