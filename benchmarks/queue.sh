#!/usr/bin/env bash
# The runs that take days, one after another, in the background of other work:
#
#   nohup benchmarks/queue.sh PLACE MINIIMAGENET [MINIIMAGENET_SMALL] > queue.log 2>&1 &
#
# MINIIMAGENET is what `varscale data prepare --format miniimagenet` reads; the rows of the small size in this repository
# were made of 280 of the 600 images of each class, which is what the third argument is for.
#
# Run it again to go on: what has a row is skipped, and a run that was stopped goes on from its checkpoint. SIGTERM
# saves one. It works on a clone of its own in PLACE, at the commit that began it, with its own environment, data, runs
# and results. Remove PLACE/varscale to go on at a newer commit; PLACE/results too if it has folders (an older layout),
# once its rows are taken over:
#
#   varscale reproduce table2 --size paper --show --take PLACE/results
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
usage="Expected benchmarks/queue.sh PLACE MINIIMAGENET [MINIIMAGENET_SMALL]"
whole=$(realpath "${2:?$usage}")
small=$(realpath "${3:-$2}")
mkdir -p "${1:?$usage}"
place=$(cd "$1" && pwd)
export OMP_NUM_THREADS=1 VARSCALE_HOME=$place

[ -e "$place/varscale" ] || git clone --quiet "$here" "$place/varscale"
if [ "$here" != "$place/varscale" ]; then # the list of runs is that of the commit that began it, too
    exec "$place/varscale/benchmarks/queue.sh" "$place" "$whole" "$small"
fi
make -C "$place/varscale" .venv/ready
if [ ! -e "$place/results" ]; then
    rm -rf "$place/results.new" # of a copy that was killed
    cp -r "$place/varscale/results" "$place/results.new"
    mv "$place/results.new" "$place/results"
fi

# Linux weighs sessions against each other before it looks at `nice`: this gets one of its own, of the least weight.
last='{ echo 19 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 19 "$@"'
varscale() {
    $(command -v setsid) bash -c "$last" queue "$place/varscale/.venv/bin/varscale" "$@" &
    wait $!
}
trap 'kill -TERM ${!:-} 2> /dev/null; wait ${!:-}; exit 143' TERM INT

[ -e "$place/data/miniimagenet" ] || varscale data prepare miniimagenet "$whole" --format miniimagenet
[ -e "$place/data/miniimagenet32" ] || varscale data prepare miniimagenet32 "$small" --format miniimagenet --size 32

reproduce() { varscale reproduce "$@" --results "$place/results" --runs "$place/runs"; }
paper() { reproduce table2 --size paper --seeds 1 "$@"; }
small() { reproduce "$@" --size small; }

# 1. Table 2 at the paper's size, one seed: 1-shot with the cosine first, two hours each
for shot in 1 5; do
    for row in "PN + SVS" "PN" "PN + D-SVS" "PN + D-AVS"; do
        paper --row "$row" --column "$shot-shot cosine" --precision bf16-mixed
    done
done
paper --row "PN" --column "5-shot Euclidean" --precision bf16-mixed
paper --row "PN" --column "5-shot cosine" # in float32

# 2. The small size: D-AVS with the mended prior, more seeds, what claims wait for
small table2 --row "PN + D-AVS"
small table4 --column "1-shot cosine"
small baselines --row "D-AVS, supports alone" --column "1-shot cosine"
small table2 --seeds 8
for shot in 1 5; do
    small table3 --row "PN cosine + SVS, learned σ" --column "$shot-shot, 5-way training" --seeds 8
done
small table5
small table6
for table in table3 table4 baselines; do small "$table"; done # 20-way training, the rest of D-AVS, controls in 5-shot
for row in "TADAM" "TADAM Euclidean + D-SVS"; do
    small table1 --row "ResNet-12: $row" --column "5-shot" --seeds 4
done
small baselines --column "5-shot TADAM" --seeds 4
small table1 # ResNet-12 in 1-shot

# 3. The rest of table 2 at the paper's size
paper --precision bf16-mixed
