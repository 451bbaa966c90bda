"""`varscale bench`: measure speed, as ratios to a floor on the same machine."""

from jsonargparse import Namespace
from rich.table import Table

from varscale.cli.output import reply
from varscale.cli.parser import command, option
from varscale.core.extras import needs


@command(
    "Measure the speed of training and evaluation, as ratios to a floor on the same machine.",
    "varscale bench --parts [heads,rates]",
    option("--repeats", "how often to repeat each measurement", default=15),
    option("--parts", "measure only these parts, such as [heads,rates]", list[str]),
)
def run(args: Namespace) -> None:
    """Measure, and print each ratio beside its target."""
    with needs("train", "Measuring speed"):
        from varscale import bench  # brings Fabric
    ratios = bench.run(args.repeats, args.parts)
    table = Table("ratio", "measured", "target", "met", "what it is")
    for ratio in ratios:
        value = f"{ratio.value:,.3g}" if ratio.value < 1000 else f"{ratio.value:,.0f}"
        bound = f"{'at least' if ratio.at_least else 'at most'} {ratio.target:g}"
        table.add_row(ratio.key, value, bound, "yes" if ratio.met else "no", ratio.meaning)
    reply(args, {ratio.key: ratio.value for ratio in ratios}, [table])
