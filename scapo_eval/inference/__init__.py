"""Runs that can be killed and resumed: describe images, answer questions, let a judge rate what was said."""
