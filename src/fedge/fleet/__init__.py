"""The roles of an experiment as nodes of a network: the naive engine's loop, spread over processes.

folders   what is carried to the machines: certificates, keys, each node's part of the fleet file
"""
