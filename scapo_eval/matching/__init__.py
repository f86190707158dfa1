"""Vocabularies, the matcher that finds mentions in captions, and the rules that determine the use of each mention."""
