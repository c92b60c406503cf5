"""A benchmark that takes no time: ``python -m tests.bench.planted_bench HOW … --out FOLDER``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROWS = {
    "cpu": [{"over_best_other": 2.0}, {"over_best_other": 0.5}, {"failed": "it crashed"}],
    "concurrency": [
        {
            "network": "Tiny", "void": [],
            "faster": {"recommended": 1.0, "S1": 1.5, "manual 2 × 1": 1.2, "backend": 0.9},
            "same_as": {name: name for name in ("recommended", "S1", "manual 2 × 1", "backend")},
        },
        {"network": "Void", "void": ["S1"]},
    ],
}  # fmt: skip


def main() -> int:
    how, folder = sys.argv[1], Path(sys.argv[-1])
    if how == "fail":
        print("first line", file=sys.stderr)
        print("--seconds 1 is too short", file=sys.stderr)
        return 2
    if how == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (folder / "child.pid").write_text(str(child.pid))
        time.sleep(600)
    (folder / f"{how}-made-up-{os.environ.get('OMP_NUM_THREADS', 'n')}t.json").write_text(
        json.dumps({"rows": ROWS[how], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES")})
    )
    print("geometric means\n\nfine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
