"""What help says of studies is here, so that it need not import them."""

PROBES = 6  # models at which a theory's constants are measured, unless told otherwise

WORDS = {  # the planner's own, and what they mean
    "minimise": "seconds, bytes or energy",
    "client_memory": "bytes that a client has, at most",
    "deadline": "simulated seconds to the target, at most",
    "exclude": "what nobody may see: inputs (unless given), activations, labels, or none",
    "client_watts": "of a client that computes, for energy",
    "joules_per_mb": "of what a client sends and is sent, for energy",
    "budget": "client steps that planning takes, at most",
    "settings": "how many race",
    "seeds": "fresh ones for each finalist",
    "finalists": "settings that run on them",
}
