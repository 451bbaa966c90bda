"""Which columns of a table are used: named by the user, by a model, or found."""

from dataclasses import dataclass, fields, replace
from typing import Literal

from varscale.core.registry import unknown
from varscale.items.tables import Table

Kind = Literal["text", "image", "embedding"]
"""What an item is: a text, the bytes of a picture file, or a row of numbers."""
KINDS: tuple[Kind, ...] = ("embedding", "image", "text")
PLURALS: dict[str | None, str] = {
    "text": "texts",
    "image": "pictures",
    "embedding": "embeddings",
    None: "texts or pictures",
}
"""What to call items of a kind; an embedder of `None` takes both."""
LABELS = ("label", "class", "intent", "category", "target", "y")
"""Columns that are taken for the label if none is named."""


@dataclass(frozen=True)
class Columns:
    """Columns of a table to use.

    Attributes:
        text: Column of texts.
        image: Column of paths of pictures, from the folder of the table.
        embedding: Column of lists of numbers, of a parquet file.
        label: Column of classes, without white space around them; an empty cell is an unlabelled
            item.
    """

    text: str | None = None
    image: str | None = None
    embedding: str | None = None
    label: str | None = None


def choose_columns(table: Table, given: Columns, fitted: Columns | None) -> Columns:
    """Find the columns to use; raise ValueError that names the nearest if one is missing.

    Args:
        table: The table.
        given: Columns that the user names.
        fitted: Columns that a model was fitted to, which serve where the user names none.
    """
    if fitted is not None and not any(getattr(given, kind) for kind in KINDS):
        given = replace(fitted, label=given.label)
        for kind in KINDS:
            if getattr(given, kind) not in (None, *table.columns):
                raise ValueError(
                    f"Expected the column {getattr(given, kind)!r}, which the model was fitted to, "
                    f"in {table.path}, got {', '.join(map(repr, table.columns))}. Name yours: "
                    f"--{kind} COLUMN."
                )
    for name in (given.text, given.image, given.embedding, given.label):
        if name is not None and name not in table.columns:
            raise unknown(f"column of {table.path}:", name, table.columns)
    if sum(getattr(given, kind) is not None for kind in KINDS) > 1:
        raise ValueError("Expected one column of --text, --image and --embedding, got several.")
    if given.label is not None and given.label in (getattr(given, kind) for kind in KINDS):
        raise ValueError(f"Expected another column for the label than {given.label!r} itself.")
    lists = table.lists()
    if given.embedding is not None and given.embedding not in lists:
        raise ValueError(
            f"Expected lists of numbers, of a parquet file, in the column {given.embedding!r} of "
            f"{table.path}, got others: name one of them, or --text COLUMN."
        )
    likely = None if fitted is None else fitted.label
    label, names = given.label, LABELS if likely is None else (likely,)
    if label is None:
        label = next((name for name in names if name in table.columns), None)
    if any(getattr(given, kind) is not None for kind in KINDS):
        return Columns(given.text, given.image, given.embedding, label)
    if len(lists) == 1:
        return Columns(embedding=lists[0], label=label)
    others = [c for c in table.columns if c != label and c not in lists]
    if len(others) == 1:
        return Columns(text=others[0], label=label)
    shown = ", ".join(map(repr, others or table.columns))
    labels = "" if label is not None or fitted is not None else " Name the labels: --label COLUMN."
    raise ValueError(
        f"Which column of {table.path} holds the texts, of {shown}? Name it: --text COLUMN, or "
        f"--image COLUMN for paths of pictures.{labels}"
    )


def are_sound(columns: object, embedder: object) -> bool:
    """Whether the columns and the embedder that a file names can come from varscale."""
    known = {column.name for column in fields(Columns)}
    return (
        isinstance(columns, dict)
        and set(columns) <= known
        and all(value is None or isinstance(value, str) for value in columns.values())
        and (embedder is None or isinstance(embedder, dict))
        and all(isinstance((embedder or {}).get(k, ""), str) for k in ("spec", "identity"))
        and (embedder is None or {"spec", "identity"} <= set(embedder))
    )
