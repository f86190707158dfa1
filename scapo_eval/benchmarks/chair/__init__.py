"""CHAIR (Rohrbach et al. 2018): how many mentioned objects are not in the image, per mention and per caption."""

from ...results.benchmark import Benchmark
from .choice import profile
from .opera import Opera
from .profiles import PROFILES, Native, Profile, Reference
from .scoring import METRICS, ChairScorer, chair_of, score_chair
from .synonyms import Synonyms

BENCHMARK = Benchmark(
    name="chair", metric_set=lambda columns: METRICS, headline=("chair_s", "chair_i", "recall", "len")
)

__all__ = [
    "BENCHMARK",
    "METRICS",
    "PROFILES",
    "ChairScorer",
    "Native",
    "Opera",
    "Profile",
    "Reference",
    "Synonyms",
    "chair_of",
    "profile",
    "score_chair",
]
