"""Files of captions and answers, in every layout that is recognized."""
