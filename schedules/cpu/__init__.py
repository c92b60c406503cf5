"""Schedule templates for the llvm target: a task tile, then a register tile."""
