"""Tables, pictures and an embedder that everybody can compute."""

import csv

import numpy as np
import pytest
from PIL import Image

LETTERS = '''
import numpy as np

def embed(items):
    """Counts of letters of texts; mean colours of the quarters of pictures."""
    if isinstance(items[0], str):
        letters = "abcdefghijklmnopqrstuvwxyz"
        return np.array([[text.lower().count(c) for c in letters] for text in items]) + 0.01
    small = [item.convert("RGB").resize((2, 2)) for item in items]
    return np.stack([np.asarray(item, dtype=float).ravel() for item in small])

def broken(items):
    return np.full((len(items), 3), np.nan)

def narrow(items):
    return np.ones((len(items) + 1, 3))

def angry(items):
    raise RuntimeError("no model here")
'''
WORDS = {
    "fruit": ["apple pie", "banana bread", "a ripe papaya", "mango and papaya"],
    "metal": ["iron ore", "zinc sheet", "silver spoon", "tin foil"],
    "tools": ["hammer", "drill hole", "wooden mallet", "metal hammer drill"],
}


@pytest.fixture
def letters(tmp_path):
    """The word for an embedder of texts and pictures."""
    (tmp_path / "letters.py").write_text(LETTERS)
    return f"python:{tmp_path / 'letters.py'}:embed"


@pytest.fixture
def tickets(tmp_path):
    """A table of texts with labels."""
    rows = [(text, name) for name, texts in WORDS.items() for text in texts]
    write_csv(tmp_path / "tickets.csv", ["question", "intent"], rows)
    return tmp_path / "tickets.csv"


@pytest.fixture
def pictures(tmp_path):
    """A folder of class folders."""
    draw = np.random.default_rng(0)
    for name in ("red", "green", "blue"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        centre = 255 * np.eye(3)[["red", "green", "blue"].index(name)]
        for i in range(4):
            pixels = (centre + draw.normal(0, 60, size=(9, 8, 3))).clip(0, 255)
            path = tmp_path / "pictures" / name / f"{i}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path / "pictures"


def write_csv(path, header, rows, **options):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
