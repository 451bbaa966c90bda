"""Download public datasets, only on request."""

from pathlib import Path

from varscale.core.extras import needs
from varscale.core.registry import unknown

FILES = {
    "omniglot": (
        "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
        {
            "images_background.zip": "md5:68d2efa1b9178cc56df9314c21c6e718",
            "images_evaluation.zip": "md5:6b91aef0f799c5bb55b94e3f2daec811",
        },
    ),
}
"""Addresses and checksums of the files that can be downloaded."""


def download(name: str, folder: Path, url: str | None = None) -> Path:
    """Download a dataset's files into a folder, except those that are already complete.

    Give the address of a mirror with the same files by `url`; proxies are taken from the
    environment. Returns the folder, as a source for `prepare`.
    """
    if name not in FILES:
        raise unknown("dataset to download", name, FILES)
    with needs("download", "Downloading"):
        import pooch
    base, checksums = FILES[name]
    base = (url or base).rstrip("/") + "/"
    try:
        for file, checksum in checksums.items():
            pooch.retrieve(base + file, known_hash=checksum, fname=file, path=folder)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{name} could not be downloaded from {base}: {reason} Run the command again, or name "
            "a mirror with --url."
        ) from error
    return folder
