"""How much straight code a kernel may have, in what each family counts before anything is built.

Beyond it compiling takes too long for a search, and the code leaves the instruction cache. The seconds are NVRTC
13's for sm_90 at the limit, on one core of a Xeon with AVX-512: 0.2 to 0.65 ms an instruction, medians of up to 9
candidates.
"""

from __future__ import annotations

TURNS_UNROLLED = 16
"""Turns in which threads move data together: more are a loop."""
BLOCK_TILE = 1300
"""Multiply-adds and weights: 2.8 s."""
GLOBAL_STRIP = 1700
"""Instructions: 0.7 s."""
RESIDENT_PLANES = 2400
"""Instructions: 1.3 s."""
STAGED_ROWS = 1500
"""Instructions in the loop over kernel rows: 0.8 s."""
TOEPLITZ_ROWS = 900
"""Products of matrices: 1.5 s."""
TOEPLITZ_GRADIENT = 900
"""The same, and what adds up diagonals: 1.5 s."""
CHANNELS_LAST = 3600
"""Multiply-adds and loads: 1.0 s."""
WEIGHT_GRADIENT = 1600
"""Multiply-adds: 1.5 s."""
BACKWARD_PLANES = 2800
"""Instructions: about 1.2 s, with what comes before NVRTC."""
WEIGHT_GRADIENT_PLANES = 2600
"""Instructions: 2.7 s."""
