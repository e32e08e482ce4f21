"""Many runs give one answer: comparisons, sweeps, papers' figures."""
