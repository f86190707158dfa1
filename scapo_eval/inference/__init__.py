"""Resumable runs of a model that describes images or answers questions, and of judges that rate its output."""
