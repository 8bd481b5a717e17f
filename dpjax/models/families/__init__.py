"""Models of exponential families."""
