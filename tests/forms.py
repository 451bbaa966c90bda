"""Small files in the real formats that datasets go round in."""

import io
import pickle
import tarfile
import zipfile
from collections import Counter

import numpy as np
from PIL import Image

CLASSES = {"train": ["n01", "n02", "n03"], "val": ["n04", "n05"], "test": ["n06", "n07"]}
PER_CLASS = 4


def split_sizes(manifest):
    """Train, val and test classes of a prepared dataset."""
    return [Counter(manifest.class_split)[s] for s in ("train", "val", "test")]


def picture(number, size=(20, 16), mode="RGB"):
    """A picture whose colour tells its number."""
    colour = {"L": number % 256, "RGB": (number % 256, 50, 200)}[mode]
    return Image.new(mode, size, colour)


def encoded(image, form="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def images():
    """(split, class, file name, content) of a small dataset."""
    number = 0
    for split, names in CLASSES.items():
        for name in names:
            for i in range(PER_CLASS):
                number += 1
                yield split, name, f"{name}{i:08d}.png", encoded(picture(number))


def csv_lines(split):
    rows = [f"{file},{name}" for home, name, file, _ in images() if home == split]
    return "\n".join(["filename,label", *rows]) + "\n"


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def csv_flat(root):
    """Ravi csv files beside a flat folder of images."""
    for _, _, file, content in images():
        write(root / "images" / file, content)
    for split in CLASSES:
        write(root / f"{split}.csv", csv_lines(split))
    return root


def csv_class_folders(root):
    for _, name, file, content in images():
        write(root / name / file, content)
    for split in CLASSES:
        write(root / f"{split}.csv", csv_lines(split))
    return root


def csv_zip(root):
    root.mkdir(parents=True)
    with zipfile.ZipFile(root / "mini.zip", "w") as archive:
        for _, name, file, content in images():
            archive.writestr(f"{name}/{file}", content)
        for split in CLASSES:
            archive.writestr(f"{split}.csv", csv_lines(split))
    return root / "mini.zip"


def split_class_folders(root):
    for split, name, file, content in images():
        write(root / split / name / file, content)
    return root


def arrays(split, size=84):
    rows = [(name, content) for home, name, _, content in images() if home == split]
    pixels = [np.asarray(Image.open(io.BytesIO(c)).resize((size, size))) for _, c in rows]
    return np.stack(pixels), [name for name, _ in rows]


def cache_pickles(root):
    """mini-imagenet-cache-*.pkl: image_data and class_dict."""
    for split in CLASSES:
        pixels, names = arrays(split)
        rows = {n: [i for i, m in enumerate(names) if m == n] for n in names}
        content = {"image_data": pixels, "class_dict": rows}
        write(root / f"mini-imagenet-cache-{split}.pkl", pickle.dumps(content, protocol=2))
    return root


def category_pickles(root):
    """miniImageNet_category_split_*.pickle: data, labels, catname2label."""
    every = [name for names in CLASSES.values() for name in names]
    for split, phase in (("train", "train_phase_train"), ("val", "val"), ("test", "test")):
        pixels, names = arrays(split)
        content = {
            "data": pixels,
            "labels": [every.index(n) for n in names],
            "catname2label": {n: every.index(n) for n in set(names)},
        }
        name = f"miniImageNet_category_split_{phase}.pickle"
        write(root / name, pickle.dumps(content, protocol=2))
    return root


def cifar(root, per_class=2):
    """cifar-100-python.tar.gz with the keys and types of the python version."""
    fine = [f"class{i:02d}" for i in range(100)]
    for i, name in enumerate(["beaver", "whale", "apple"]):
        fine[i] = name
    meta = {b"fine_label_names": [n.encode() for n in fine], b"coarse_label_names": []}
    parts = {}
    for part in ("train", "test"):
        labels = [i for i in range(100) for _ in range(per_class)]
        pixels = np.zeros((len(labels), 3072), dtype=np.uint8)
        pixels[:, :1024] = np.array(labels)[:, None]  # red tells the class
        parts[part] = {
            b"data": pixels,
            b"fine_labels": labels,
            b"coarse_labels": [label // 5 for label in labels],
            b"filenames": [b"x.png"] * len(labels),
        }
    root.mkdir(parents=True)
    with tarfile.open(root / "cifar-100-python.tar.gz", "w:gz") as archive:
        for name, content in {**parts, "meta": meta}.items():
            data = pickle.dumps(content, protocol=2)
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return root / "cifar-100-python.tar.gz"


OMNIGLOT = {
    "background": [("Greek", 2), ("Armenian", 1), ("Gurmukhi", 43)],
    "evaluation": [("Keble", 2), ("Hebrew", 1)],
}


def omniglot_files():
    for lake, alphabets in OMNIGLOT.items():
        for alphabet, characters in alphabets:
            for c in range(1, characters + 1):
                for drawer in range(1, 3):
                    image = Image.new("1", (105, 105), 1)
                    image.paste(0, (10, 10, 40, 95))
                    path = f"images_{lake}/{alphabet}/character{c:02d}/{c:04d}_{drawer:02d}.png"
                    yield path, encoded(image)


def omniglot_tree(root):
    for path, content in omniglot_files():
        write(root / path, content)
    return root


def omniglot_zips(root):
    root.mkdir(parents=True)
    for lake in OMNIGLOT:
        with zipfile.ZipFile(root / f"images_{lake}.zip", "w") as archive:
            for path, content in omniglot_files():
                if lake in path:
                    archive.writestr(path, content)
    return root


def cub(root, classes=8):
    for c in range(1, classes + 1):
        for i in range(2):
            path = f"CUB_200_2011/images/{c:03d}.Bird_{c}/Bird_{c}_{i:04d}.jpg"
            write(root / path, encoded(picture(c), "JPEG"))
    write(root / "CUB_200_2011/classes.txt", "1 001.Bird_1\n")
    return root
