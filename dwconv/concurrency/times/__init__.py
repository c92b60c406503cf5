"""How long tasks take by their number of threads: timed, climbed or predicted; and what hand-overs cost."""
