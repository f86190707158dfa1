"""Claims in captions about more than presence: counts, attributes, relations and written text."""
