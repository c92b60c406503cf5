"""Training on several devices: data and gradients move while others are computed; layers spread over pipeline stages.

Nothing in the rest of dwconv imports this package.
"""
