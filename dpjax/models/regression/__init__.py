"""Models of linear regressions."""
