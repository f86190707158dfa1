"""Resumable runs of models that describe images or answer questions, and of judges that rate the output
of such models.
"""
