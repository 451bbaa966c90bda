"""`varscale report`: write one HTML page about runs or results."""

from pathlib import Path

from jsonargparse import Namespace

from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.core.files import check_target, marked, write_whole
from varscale.paper.document import BEGINNING, markdown, sections
from varscale.report.html import check_page, page
from varscale.report.runs import run_sections, score_runs
from varscale.runs.scores import Test, runs_in


@command(
    "Write one self-contained HTML page about runs, or about a folder of results.",
    "varscale report demo/pn demo/svs --out report.html",
    option("paths PATH", "run directories, folders of runs, or a folder of results", nargs="+"),
    option("--out FILE", "HTML file to write", default="report.html"),
    option("--markdown FILE", "write results as Markdown instead"),
    option("--episodes", "test tasks of each run", default=10_000),
)
def run(args: Namespace) -> None:
    """Write the page."""
    paths = [Path(path) for path in args.paths]
    results = [path for path in paths if any(path.glob("*.csv"))]
    if args.markdown:
        if len(results) != 1:
            raise ValueError(f"Expected one folder of results, got {' '.join(args.paths)}.")
        ours = marked(BEGINNING.encode())
        check_target(Path(args.markdown), "a page", ours, makes_folder=True)
        _write(args, args.markdown, markdown(results[0]))
        return
    check_page(Path(args.out), makes_folder=True)
    runs = [run for path in paths if path not in results for run in runs_in(path)]
    names = ["the paper, re-run"] if results else []
    parts = [part for path in results for part in sections(path)]
    if runs:
        test = Test(episodes=args.episodes)
        scored = score_runs(runs, test)
        names += scored
        parts += run_sections(scored, test)
    _write(args, args.out, page(f"varscale: {', '.join(names)}", parts))


def _write(args: Namespace, file: str, text: str) -> None:
    content = text.encode()
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    write_whole(Path(file), content)
    shown = f"{file}: {len(content) / 1e6:.1f} MB"
    reply(args, {"out": file, "bytes": len(content)}, shown)
