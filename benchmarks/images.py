"""Ways to classify embeddings of images, beside those of sentences in `embeddings.py`.

    python benchmarks/images.py DATA [--only conv4]

DATA is a folder with `conv4.npz` and `resnet12.npz`: a dataset as `varscale embed` writes it, by
backbones that were trained on its training classes. So the base classes are its `val` classes,
which the backbones have not seen. Rivals choose on them too. One more line learns the prior on the
training classes.

The scores of every task are kept in `--cache`: run it again to go on. Writes `images.csv`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from embeddings import Data, Line, fill_cache, make_plan, read_cache
from rows import append_rows

from varscale.functional import normalize

FILE = Path(__file__).with_name("images.csv")
BACKBONES = ("conv4", "resnet12")
TASKS = {"ours": 1000, "seen": 300, "rivals": 300, "slow rivals": 100}
SEEN = "the same, prior of training classes"


class Images(Data):
    """Embeddings as unit vectors, the way the backbones were trained to compare them."""

    grid = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)

    def __init__(self, file: Path, base: str) -> None:
        super().__init__(file, base)
        self.splits = {split: (normalize(x), y) for split, (x, y) in self.splits.items()}


def make_image_plan(names: list[str]) -> Iterator[Line]:
    """Every line of the tables; *seen* are the training classes."""
    yield from make_plan(names, ["ours"])
    yield from ((name, f"{name} train", "seen", SEEN) for name in names)
    yield from make_plan(names, ["rivals", "slow rivals"])


def main() -> None:
    """Score what is not in the cache, then write all that is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="*", default=list(BACKBONES), help="backbones")
    parser.add_argument("--cache", type=Path, default=Path("images-cache"))
    args = parser.parse_args()
    data = {}
    for name in args.only:
        file = args.data / f"{name}.npz"
        data |= {name: Images(file, "val"), f"{name} train": Images(file, "train")}
    fill_cache(args.cache, data, make_image_plan(args.only), TASKS)
    FILE.unlink(missing_ok=True)
    append_rows(FILE, list(read_cache(args.cache, make_image_plan(list(BACKBONES)))))


if __name__ == "__main__":
    main()
