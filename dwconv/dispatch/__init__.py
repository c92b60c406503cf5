"""From a call to what runs it, dwconv's kernel or PyTorch's own op, and why."""
