"""The fleet: the roles of an experiment as nodes that exchange messages, on one machine or on many.

wire        a message as bytes: a typed header, the bytes of its tensors, a checksum
identity    who is who: an authority and its certificates
"""
