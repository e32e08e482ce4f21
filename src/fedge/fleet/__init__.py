"""The roles of an experiment as nodes of a network: the naive engine's loop, spread over processes.

folders   what is carried to the machines: certificates, keys, each node's part of the fleet file
work      what every node knows of its experiment: forms of messages, compiled steps
forecast  what processors and links gave in the first rounds, and the seconds of later ones by it
told      what the roles tell of themselves while they work
greeting  what two nodes that meet compare
client    a process with the samples of one client or several
cell      an edge and its clients: an edge round over links; the cloud's own where there are no edges
edge      a node between its clients and the cloud
cloud     an engine that makes global rounds over links
gossip    an edge without a cloud, which exchanges models with its neighbours
monitor   an engine that listens to such edges
split     a split model's steps by halves; split_client and split_cell are its roles
"""
