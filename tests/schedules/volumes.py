"""3-D layers that templates of every device are tried on: fprop, each for an edge that they go wrong on."""

from __future__ import annotations

from tests.schedules.cpu_layers import layer

VOLUMES = {
    "3 by 3 by 3": layer(20, (5, 6, 9), (3, 3, 3), padding=((1, 1), (1, 1), (1, 1))),
    "plane by plane": layer(17, (4, 7, 8), (1, 3, 3), padding=((0, 0), (1, 1), (1, 1)), stride=(1, 2, 2)),
    "along the depth": layer(16, (9, 5, 6), (3, 1, 1), padding=((1, 1), (0, 0), (0, 0)), stride=(2, 1, 1)),
    "5 by 5 by 5": layer(6, (6, 8, 7), (5, 5, 5), padding=((2, 2), (2, 2), (2, 2)), stride=(2, 2, 2)),
    "7 by 7 by 7": layer(5, (7, 9, 8), (7, 7, 7), padding=((3, 3), (3, 3), (3, 3))),
    "padding per side": layer(8, (5, 6, 7), (2, 3, 4), padding=((2, 0), (0, 1), (1, 3)), stride=(3, 1, 2)),
    "dilation and stride": layer(
        18, (9, 10, 11), (3, 3, 3), padding=((2, 1), (3, 3), (2, 2)), dilation=(2, 3, 2), stride=(2, 2, 3)
    ),
    "dilation is the stride": layer(
        4, (8, 8, 8), (3, 3, 3), padding=((2, 2), (2, 2), (2, 2)), dilation=(2, 2, 2), stride=(2, 2, 2)
    ),
    "multiplier": layer(6, (4, 5, 6), (3, 3, 3), padding=((1, 1), (1, 1), (1, 1)), stride=(2, 1, 2), multiplier=3),
    "planes of padding alone": layer(7, (2, 4, 5), (3, 3, 3), padding=((4, 3), (1, 1), (1, 1)), dilation=(2, 1, 1)),
    "stride beyond the kernel": layer(4, (11, 5, 5), (2, 3, 3), padding=((0, 0), (1, 1), (1, 1)), stride=(5, 1, 1)),
    "a depth of 1": layer(9, (1, 6, 7), (3, 3, 3), padding=((1, 1), (1, 1), (1, 1))),
}  # fmt: skip
