"""How the CPU families cut their work and what limits it, in plain integers. No TVM here."""
