"""What runs an untuned workload on this device: which configurations to start from, and what they are expected
to gain over PyTorch's own op.

    starts.py          the configurations to start from, the most promising first: those of similar workloads among
                       the records, and those of least estimated cost
    portfolio_file.py  the portfolio: the model of the gain, and its errors
    gain.py            how much faster than PyTorch's op the first start is expected to be, and how sure that is
    other_size.py      the same where the layer was measured at another size on this device
    make_portfolio.py  makes the portfolio from what records measured (evidence.py) with boosted trees (trees.py)
"""
