"""What runs an untuned workload on this device: which configurations to start from, and what they are expected
to gain over PyTorch's own op.

    similar.py    the workloads nearest to it among the records, of whatever device
    formula.py    the configurations of least estimated cost: chosen by computation, where there are no records
    portfolio.py  a few configurations for each regime (regimes.py), and the model of the gain: portfolio.json
    starts.py     the configurations to start from, the most promising first
    other_size.py the same, where the layer was measured at another size on this device
    gain.py       how much faster than PyTorch's op that one is expected to be, and how sure that is

The portfolio is made (make.py) from what records measured (evidence.py): its configurations are chosen (choose.py), the
gain and its errors are learnt (learn.py), by boosted trees (trees.py) from the sizes of workloads (features.py).
"""
