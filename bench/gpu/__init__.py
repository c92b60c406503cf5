"""The stages of ``bench cuda``, a file each; ``run.py`` and ``worker.py`` are what they share."""
