"""CHAIR (Rohrbach et al. 2018): the share of object mentions that are hallucinated, and the share of captions with such
a mention.
"""

from .benchmark import BENCHMARK, OBJECTS, chair, scored_by_profile
from .choice import profile
from .opera import Opera
from .profiles import PROFILES, Native, Profile, Reference
from .scoring import METRICS, ChairScorer, chair_of, score_chair
from .synonyms import Synonyms

__all__ = [
    "BENCHMARK",
    "METRICS",
    "OBJECTS",
    "PROFILES",
    "ChairScorer",
    "Native",
    "Opera",
    "Profile",
    "Reference",
    "Synonyms",
    "chair",
    "chair_of",
    "profile",
    "score_chair",
    "scored_by_profile",
]
