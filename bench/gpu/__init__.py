"""``bench cuda``, stage by stage: ``smoke``, ``verify``, ``tune``, ``race``, ``train`` and ``rank``, a file each."""
