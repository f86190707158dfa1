"""CHAIR (Rohrbach et al. 2018): how many mentioned objects are not in the image, per mention and per caption."""

from ...results.benchmark import Benchmark
from .choice import profile
from .opera import Opera
from .profiles import PROFILES, Native, Profile, Reference
from .scoring import METRICS, METRICS_BESIDE, NATIVE, ChairScorer, chair_of, score_chair
from .synonyms import Synonyms

BENCHMARK = Benchmark(
    name="chair",
    metric_set=lambda columns: METRICS_BESIDE if f"captions{NATIVE}" in columns else METRICS,
    headline=("chair_s", "chair_i", "recall", "precision", "f1", "len", f"chair_s{NATIVE}", f"chair_i{NATIVE}"),
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
