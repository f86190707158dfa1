"""CHAIR (Rohrbach et al. 2018): how many mentioned objects are not in the image, per mention and per caption."""

from .opera import Opera
from .profiles import PROFILES, Native, Profile, Reference
from .scoring import METRIC, ChairScorer, score_chair
from .synonyms import Synonyms

__all__ = ["METRIC", "PROFILES", "ChairScorer", "Native", "Opera", "Profile", "Reference", "Synonyms", "score_chair"]
