"""Run all benchmarks, each in a process of its own, and sum up."""

import json
import subprocess
import sys

from benchmarks.common import ROOT, parser, result_file, say
from benchmarks.reporting import Row, table

CLAIMS = (
    "startup",
    "binary",
    "regression",
    "crammer_singer",
    "one_vs_rest",
    "path",
    "memory",
    "scaling",
    "accuracy",
    "heuristics",
    "ocr_chains",
    "letters",
    "chunking",
    "brown_tagging",
    "cutting_planes",
    "temperature",
    "treebank",
    "dependencies",
    "snakes",
    "grids",
    "multilabel",
    "hierarchy",
    "ordinal",
    "ranking",
    "performance",
    "libsvm_reading",
    "model_files",
    "time_left",
    "cluster",
    "cluster_model",
    "online",
    "out_of_core",
    "latent",
    "kernels",
    "pose",
    "pose_batches",
)


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--only", nargs="+", choices=CLAIMS, default=CLAIMS, metavar="CLAIM")
    options = arguments.parse_args()
    flags = ["--quick"] if options.quick else []
    rows = []
    for claim in options.only:
        say(f"\n== {claim} ==")
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{claim}", *flags], cwd=ROOT)
        if done.returncode:
            rows.append(Row(claim, "", f"failed with exit code {done.returncode}", met=False))
            continue
        found = json.loads(result_file(claim, options.quick).read_text())["rows"]
        rows += [Row(**row | {"what": f"{claim}: {row['what']}"}) for row in found]
    print("All claims\n")
    print(table(rows))
    sys.exit(any(row.reached.startswith("failed") for row in rows))


if __name__ == "__main__":
    main()
