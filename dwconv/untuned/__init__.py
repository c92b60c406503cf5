"""What runs an untuned workload on this device: which configurations to start from, and what they are expected
to gain over PyTorch's own op.

    starts.py          the configurations to start from, the most promising first: those of similar workloads among
                       the records, those of least estimated cost, those of the portfolio
    portfolio_file.py  the portfolio: a few configurations for each regime, and the model of the gain
    other_size.py      the configurations to start from where the layer was measured at another size on this device
    gain.py            how much faster than PyTorch's op the first one is expected to be, and how sure that is
    make.py            makes the portfolio from what records measured (evidence.py): chooses its configurations, and
                       learns the gain and its errors by boosted trees (trees.py)
"""
