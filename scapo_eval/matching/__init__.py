"""Words to mentions: vocabulary, matcher, and what each mention is used for."""
