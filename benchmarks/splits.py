"""How far a scale learned on some classes is from the best one for others, over draws of both.

    python benchmarks/splits.py DATA [--draws 16]

25 base classes and 27 others, drawn from all classes of a dataset: the scale that the estimator
learns on the first over the scale of least NLL on tasks of the second. Writes `splits.csv`.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from embeddings import DATASETS, Data, write

from varscale.classifier.learner import PriorLearner
from varscale.core.labels import number_classes

BASE, OTHERS = 25, 27
KINDS = {
    "whitened": {},
    "centred": {"shrinkage": None},
    "as they are": {"center": False, "shrinkage": None},
}


def main() -> None:
    """Draw, learn, and compare."""
    parser = argparse.ArgumentParser(description="Scales of some classes on others.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--draws", type=int, default=16)
    args = parser.parse_args()
    rows = []
    for name in DATASETS:
        data = Data(args.data, name)
        parts, shift = [], 0
        for _, y in data.splits.values():
            parts.append(y + shift)
            shift += int(y.max()) + 1
        x, y = torch.cat([x for x, _ in data.splits.values()]), np.concatenate(parts)
        for kind, options in KINDS.items():
            for seed in range(args.draws):
                order = np.random.default_rng(seed).permutation(shift)
                base = np.isin(y, order[:BASE])
                others = np.isin(y, order[BASE : BASE + OTHERS])
                learner = PriorLearner(seed=seed, **options)
                learned = learner(x[base], number_classes(y[base]))
                best = learner.best_on(learned.metric, x[others], number_classes(y[others]))
                for shot in (1, 5):
                    ours, theirs = (
                        float(scale.origin * scale.q.mean)
                        * shot
                        / (shot + float(scale.shot_offset))
                        for scale in (learned.scale(), best)
                    )
                    rows.append(
                        {
                            "dataset": name,
                            "embeddings": kind,
                            "seed": seed,
                            "shot": shot,
                            "learned": round(ours, 4),
                            "best": round(theirs, 4),
                        }
                    )
            print(rows[-1], flush=True)
    write("splits.csv", rows)


if __name__ == "__main__":
    main()
