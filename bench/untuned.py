"""``python -m bench untuned``: layers that nobody tuned for: the predicted kernel and the winner of a race, against
what a search finds.

Layers of well-known networks are drawn with other batch sizes, channels and maps, one pass of each. Records of this
device are held out: the predicted kernel and the racers come from the records of other devices. At the end all are timed
side by side, PyTorch's op too.
"""
