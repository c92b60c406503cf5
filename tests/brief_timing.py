"""Imported by a worker before its handler, where tests use it: kernels are timed for a glance, whatever for.

Finalists are timed for a second and a half, on a busy machine for five: nothing to tests of what becomes of the times.
"""

import sys

if not sys.argv[3].endswith(":BuildHandler"):  # that does without PyTorch, and starts the sooner
    from dwconv.measure import timing_worker
    from dwconv.measure.clock import timing

    for module in (timing, timing_worker):  # a forked worker imported both before
        module.FINAL = module.TRIAL = module.RACE = timing.GLANCE
