"""Options of where items come from and what embeds them, shared by fit, predict and check."""

from varscale.cli.parser import option

SOURCE = (
    option("--text COLUMN", "of a table: the column of texts"),
    option("--image COLUMN", "of a table: the column of paths of pictures"),
    option("--embedding COLUMN", "of a parquet file: the column of embeddings"),
    option("--label COLUMN", "of a table: the column of classes; empty cells are unlabelled items"),
    option("--split", "of embeddings: use only the classes of this split: train, val or test"),
    option("--skip_bad", "go on without broken pictures and empty texts", action="store_true"),
)
"""Options that say how to read items."""
EMBEDDER = (
    option("--embedder EMB", "what embeds items, such as run:RUN; varscale ls embedders"),
    option("--download", "allow the embedder to download weights", action="store_true"),
)
"""Options that say how to embed items."""
