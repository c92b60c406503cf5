"""The GPU in plain integers, and the cost of work on it. No TVM here."""
