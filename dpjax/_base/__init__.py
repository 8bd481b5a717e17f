"""Checks, files, text and laziness that every floor uses; no JAX."""
