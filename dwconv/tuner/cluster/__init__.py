"""Tuning on the nodes of a cluster, from one machine, which has the logs.

on_ray ──► node: link ──► worker, on each node ──► search
  ▲                          │ messages
driver ──► a campaign for each name of a device ──► log
"""
