"""What the commands share: their command lines, and the model that one of them tunes."""
