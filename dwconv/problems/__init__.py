"""What is computed: a workload, the right answer, PyTorch's own op, the device."""
