"""The fleet: the roles of an experiment as nodes that exchange messages, on one machine or on many.

wire          a message as bytes: a typed header, the bytes of its tensors, a checksum
fleet         which nodes there are, where each is reached, and how long one waits for another
identity      who is who: an authority, what each node carries, and how one dials another
status        how a node is doing, asked over the wire; metrics, log_file and watched tell other programs
certificates  what a certificate says of a node
"""
