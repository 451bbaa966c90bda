"""The image folder of `no_settings.py`: 30 classes of 25 pictures each.

    python benchmarks/pictures.py miniimagenet_84x84.zip FOLDER

They are the first 25 of each of the first 30 classes in the order of `val.csv`, then `test.csv`.
"""

import argparse
import csv
import zipfile
from pathlib import Path

CLASSES, PICTURES = 30, 25


def main() -> None:
    """Take the pictures out of the archive, one folder a class."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    with zipfile.ZipFile(args.archive) as archive:
        files: dict[str, list[str]] = {}
        for split in ("val.csv", "test.csv"):
            for row in csv.DictReader(archive.read(split).decode().splitlines()):
                files.setdefault(row["label"], []).append(row["filename"])
        for label in list(files)[:CLASSES]:
            (args.folder / label).mkdir(parents=True, exist_ok=True)
            for name in files[label][:PICTURES]:
                (args.folder / label / name).write_bytes(archive.read(f"{label}/{name}"))


if __name__ == "__main__":
    main()
