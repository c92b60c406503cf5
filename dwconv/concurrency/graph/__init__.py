"""From a traced graph to tasks: chains of operators, and the Python that runs each."""
