"""The commands by name, and the first page of help: read before anything slow is imported."""

import difflib
from collections.abc import Collection
from typing import NamedTuple


class Command(NamedTuple):
    """One command of the program: the file that has it, what it does, and who needs it."""

    module: str
    summary: str
    group: str = ""  # the first page leaves it to `varscale data --help`


TRY, CLASSIFY = "Try it", "Classify with a few examples per class"
TRAIN, PAPER = "Train and compare models", "Reproduce the paper"

COMMANDS = {
    "demo": Command("demo", "Train with and without a learned scale, and compare.", TRY),
    "doctor": Command("doctor", "Show versions, devices and known conflicts.", TRY),
    "ls": Command("ls", "List scalers, hosts, backbones, embedders, presets and datasets.", TRY),
    "fit": Command("fit", "Fit a classifier to texts, pictures or embeddings.", CLASSIFY),
    "predict": Command("predict", "Classify items, with probabilities.", CLASSIFY),
    "check": Command("check", "Find wrong labels, and what to label next.", CLASSIFY),
    "embed": Command("embed", "Embed a dataset with a trained model.", CLASSIFY),
    "export": Command("export", "Write a classifier or a trained model as ONNX.", CLASSIFY),
    "data": Command("data", "Prepare your images or embeddings as a dataset.", TRAIN),
    "train": Command("train", "Train a model into a run directory.", TRAIN),
    "resume": Command("resume", "Continue an interrupted run.", TRAIN),
    "eval": Command("evaluate", "Test a run: accuracy with its interval, NLL, ECE, Brier.", TRAIN),
    "compare": Command("compare", "Compare two runs on the same test tasks.", TRAIN),
    "report": Command("report", "Write an HTML page about runs or results.", TRAIN),
    "reproduce": Command("reproduce", "Run a table or figure of the paper.", PAPER),
    "claims": Command("claims", "Judge each claim of the paper by our results.", PAPER),
    "bench": Command("bench", "Measure the speed of training and evaluation.", PAPER),
    "data list": Command("data", "List the prepared datasets."),
    "data prepare": Command("data", "Turn images or embeddings on disk into a dataset."),
    "data check": Command("data", "Verify every byte of a dataset."),
    "data show": Command("data", "Draw a contact sheet of a dataset of images."),
    "data download": Command("data", "Download a public dataset."),
}


def overview() -> str:
    """The first page of help."""
    lines = [
        "varscale learns the scale of a few-shot classifier's distances instead of tuning it.",
        "",
        "First example: varscale demo",
    ]
    for group in (TRY, CLASSIFY, TRAIN, PAPER):
        lines += ["", group, *_summaries(group)]
    lines += ["", "varscale COMMAND --help shows a command's options and an example."]
    return "\n".join(lines)


def data_overview() -> str:
    """The help of `varscale data`, which only has commands of its own."""
    lines = ["varscale data COMMAND", "", COMMANDS["data"].summary, "", *_summaries("")]
    return "\n".join([*lines, "", "Example: varscale data prepare mine path/to/folder"])


def _summaries(group: str) -> list[str]:
    own = {name: command for name, command in COMMANDS.items() if command.group == group}
    return [f"  {name.split()[-1]:10} {command.summary}" for name, command in own.items()]


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that was probably meant."""
    return next(iter(difflib.get_close_matches(word, known, n=1, cutoff=0.6)), None)
