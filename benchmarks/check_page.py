"""The page that `docs/check.png` shows: intents of Banking77, three labels wrong.

python benchmarks/check_page.py DATA check.html
"""

import argparse
from pathlib import Path

import numpy as np

from varscale import FewShotClassifier
from varscale.report.check import Display, check_sections
from varscale.report.findings import describe_examples, describe_items
from varscale.report.html import page


def main() -> None:
    """Fit twelve intents of five examples each, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    with np.load(args.data / "banking77_minilm.npz") as file:
        x, y, texts = file["embeddings"].astype(np.float32), file["labels"], file["texts"]
        names, split = file["class_names"], file["class_split"]
    base = split[y] == "train"
    prior = FewShotClassifier().fit(x[base], y[base]).prior_
    draw, few, rest = np.random.default_rng(0), [], []
    chosen = draw.permutation(np.flatnonzero(split == "test"))[:12]
    for c in chosen:
        order = draw.permutation(np.flatnonzero(y == c))
        few += order[:5].tolist()
        rest += order[5:30].tolist()
    labels = names[y[few]]
    for i in (3, 22, 41):
        labels[i] = names[draw.choice(chosen[chosen != y[few[i]]])]
    clf = FewShotClassifier(prior=prior).fit(x[few], labels)
    facts = {
        "examples": describe_examples(clf, more=20),
        "items": describe_items(clf, x[rest], None, n_next=8),
    }
    shown = Display("example", texts[few].tolist()), Display("item", texts[rest].tolist())
    args.out.write_text(page("Check of intents.safetensors", check_sections(facts, *shown)))


if __name__ == "__main__":
    main()
