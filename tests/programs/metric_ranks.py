"""One rank of a distributed CapScoreMetric: ``metric_ranks.py RANK SIZE STORE CAPTIONS TRUTH OUT``.

Every rank updates the metric with its share of the captions, batch by batch, and writes the computed values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from scapo_eval.integrations.torchmetrics import CapScoreMetric


def main() -> None:
    """Runs one rank."""
    rank, size, store, captions, truth, out = sys.argv[1:]
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(size))
    records = [json.loads(line) for line in Path(captions).read_text().splitlines()]
    own = records[int(rank) :: int(size)]
    metric = CapScoreMetric(truth)
    for k in range(0, len(own), 3):
        batch = own[k : k + 3]
        metric.update([record["image_id"] for record in batch], [record["caption"] for record in batch])
    alone = metric.counts.tolist()
    values = {name: value.item() for name, value in metric.compute().items()}
    Path(f"{out}.{rank}").write_text(json.dumps({"values": values, "alone": alone, "after": metric.counts.tolist()}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
